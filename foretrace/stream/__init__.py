"""Learning from streams of rows: whole runs, and estimators.

`Classifier`, `Regressor` and `Forecaster` are estimators of river and need the package river.
`SktimeForecaster` is an estimator of sktime and needs the package sktime.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretrace.stream.experts.expert import AbstractExpert as AbstractExpert
    from foretrace.stream.experts.expert import Features as Features
    from foretrace.stream.experts.expert import Lesson as Lesson
    from foretrace.stream.experts.shape import Shape as Shape
    from foretrace.stream.model.model_config import ModelConfig as ModelConfig
    from foretrace.stream.python.river import Classifier as Classifier
    from foretrace.stream.python.river import Forecaster as Forecaster
    from foretrace.stream.python.river import Regressor as Regressor
    from foretrace.stream.python.sktime import SktimeForecaster as SktimeForecaster
    from foretrace.stream.runs.config import StreamConfig as StreamConfig
    from foretrace.stream.runs.run import StreamResult as StreamResult
    from foretrace.stream.runs.run_from_python import run as run

_PLACES = {
    "AbstractExpert": "experts.expert",
    "Classifier": "python.river",
    "Features": "experts.expert",
    "Forecaster": "python.river",
    "Lesson": "experts.expert",
    "ModelConfig": "model.model_config",
    "Regressor": "python.river",
    "Shape": "experts.shape",
    "SktimeForecaster": "python.sktime",
    "StreamConfig": "runs.config",
    "StreamResult": "runs.run",
    "run": "runs.run_from_python",
}


def __getattr__(name: str) -> Any:
    """Import a module when one of its names is used, because only estimators need river."""
    if name in _PLACES:
        return getattr(importlib.import_module(f"foretrace.stream.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
