"""Streams of rows: a whole run, and the river estimators `Classifier`, `Regressor`, `Forecaster`, which need river."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretrace.stream._config import StreamConfig as StreamConfig
    from foretrace.stream._loop import StreamResult as StreamResult
    from foretrace.stream._model_config import ModelConfig as ModelConfig
    from foretrace.stream._python import run as run
    from foretrace.stream._river import Classifier as Classifier
    from foretrace.stream._river import Forecaster as Forecaster
    from foretrace.stream._river import Regressor as Regressor

_PLACES = {
    "Classifier": "_river",
    "Forecaster": "_river",
    "ModelConfig": "_model_config",
    "Regressor": "_river",
    "StreamConfig": "_config",
    "StreamResult": "_loop",
    "run": "_python",
}


def __getattr__(name: str) -> Any:
    """Import a module when one of its names is asked for: river is needed by the estimators alone."""
    if name in _PLACES:
        return getattr(importlib.import_module(f"foretrace.stream.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
