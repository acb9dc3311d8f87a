"""Experiments: training of a configuration in a run directory, from which it can be resumed."""

from foretrace._options.cells import Beside as Beside
from foretrace._options.cells import __getattr__ as __getattr__
from foretrace._options.network import NetworkConfig as NetworkConfig
from foretrace._runs.directory import Run as Run
from foretrace._runs.directory import RunError as RunError
from foretrace._runs.directory import default_path as default_path
from foretrace._runs.follow import DivergenceError as DivergenceError
from foretrace._runs.follow import Result as Result
from foretrace.experiment._build import build as build
from foretrace.experiment._config import Config as Config
from foretrace.experiment._config import OptimizerConfig as OptimizerConfig
from foretrace.experiment._scores import Scores as Scores
from foretrace.experiment._train import read_config as read_config
from foretrace.experiment._train import train as train
from foretrace.tasks.copy import Copy as Copy
from foretrace.tasks.own import OwnSequences as OwnSequences
from foretrace.tasks.selective_copy import SelectiveCopy as SelectiveCopy
