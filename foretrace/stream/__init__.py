"""Streams of rows: a whole run, and estimators.

`Classifier`, `Regressor` and `Forecaster` are estimators of river and need it; `SktimeForecaster`
is one of sktime.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretrace.stream._config import StreamConfig as StreamConfig
    from foretrace.stream._model_config import ModelConfig as ModelConfig
    from foretrace.stream._river import Classifier as Classifier
    from foretrace.stream._river import Forecaster as Forecaster
    from foretrace.stream._river import Regressor as Regressor
    from foretrace.stream._run import StreamResult as StreamResult
    from foretrace.stream._run_from_python import run as run
    from foretrace.stream._sktime import SktimeForecaster as SktimeForecaster

_PLACES = {
    "Classifier": "_river",
    "Forecaster": "_river",
    "ModelConfig": "_model_config",
    "Regressor": "_river",
    "SktimeForecaster": "_sktime",
    "StreamConfig": "_config",
    "StreamResult": "_run",
    "run": "_run_from_python",
}


def __getattr__(name: str) -> Any:
    """Import a module when one of its names is needed: only estimators need river."""
    if name in _PLACES:
        return getattr(importlib.import_module(f"foretrace.stream.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
