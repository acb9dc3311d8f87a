"""foretrace trains recurrent networks online, in memory that does not grow with the stream."""

import importlib
import importlib.metadata
from types import ModuleType as _ModuleType

from foretrace import heads as heads
from foretrace import losses as losses
from foretrace import testing as testing
from foretrace._cells.abstract import AbstractCell as AbstractCell
from foretrace._cells.abstract import AbstractDiagonalCell as AbstractDiagonalCell
from foretrace._cells.abstract import Coefficients as Coefficients
from foretrace._cells.beside import Beside as Beside
from foretrace._cells.from_module import FromModule as FromModule
from foretrace._cells.registry import *  # noqa: F403 - its __all__ is the list of cells
from foretrace._engine.alignment import Alignment as Alignment
from foretrace._engine.alignment import alignment as alignment
from foretrace._engine.carry import carry_size as carry_size
from foretrace._engine.carry import init_carry as init_carry
from foretrace._engine.forward import forward as forward
from foretrace._engine.gradient import gradient as gradient
from foretrace._engine.operations import operation_count as operation_count
from foretrace._engine.untrained import untrained_parameters as untrained_parameters
from foretrace._export.export import Exported as Exported
from foretrace._export.export import export as export
from foretrace._export.to_torch import TorchFiles as TorchFiles
from foretrace._export.to_torch import to_torch as to_torch
from foretrace._learner.fit import Fit as Fit
from foretrace._learner.fit import fit as fit
from foretrace._learner.forgetting import Forgetting as Forgetting
from foretrace._learner.kalman import kalman as kalman
from foretrace._learner.learner import Learner as Learner
from foretrace._learner.optimizer import adamw as adamw
from foretrace._learner.state import Info as Info
from foretrace._learner.state import LearnerState as LearnerState
from foretrace._learner.state import UntrainedParameters as UntrainedParameters
from foretrace._learner.wrappers import bounded as bounded
from foretrace._modules import ModuleNetwork as ModuleNetwork
from foretrace._native.compiler import CompilerError as CompilerError
from foretrace._native.native import Native as Native
from foretrace._native.native import NativeStep as NativeStep
from foretrace._native.native import native as native
from foretrace._network import Network as Network
from foretrace._network import parameter_count as parameter_count
from foretrace._recurrence.chunk import Carry as Carry
from foretrace._rule import BPTT as BPTT
from foretrace._rule import HYBRID as HYBRID
from foretrace._rule import ONLINE as ONLINE
from foretrace._rule import RESERVOIR as RESERVOIR
from foretrace._rule import RTRL as RTRL
from foretrace._rule import SNAP1 as SNAP1
from foretrace._rule import SPATIAL as SPATIAL
from foretrace._rule import TRUNCATED as TRUNCATED
from foretrace._rule import LearningRule as LearningRule
from foretrace._rule import rule as rule
from foretrace._runs.checkpoint import CheckpointError as CheckpointError
from foretrace._runs.checkpoint import load as load
from foretrace._runs.checkpoint import read_extra as read_extra
from foretrace._runs.checkpoint import save as save

__all__ = [
    name for name, value in vars().items() if not name.startswith("_") and value is not importlib
]
"""Every public name, as `help(foretrace)` lists them."""

__version__ = importlib.metadata.version("foretrace")


def __getattr__(name: str) -> _ModuleType:
    """Import a public subpackage on first access, because some need optional packages."""
    if name in ("experiment", "rl", "stream", "sweep", "tasks"):
        return importlib.import_module(f"foretrace.{name}")
    raise AttributeError(f"module 'foretrace' has no attribute {name!r}")
