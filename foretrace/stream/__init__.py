"""Streams of rows, and the river estimators `Classifier`, `Regressor`, `Forecaster`; these need river."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretrace.stream._river import Classifier as Classifier
    from foretrace.stream._river import Forecaster as Forecaster
    from foretrace.stream._river import Regressor as Regressor


def __getattr__(name: str) -> Any:
    """Import river when an estimator is asked for."""
    if name in ("Classifier", "Forecaster", "Regressor"):
        return getattr(importlib.import_module("foretrace.stream._river"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
