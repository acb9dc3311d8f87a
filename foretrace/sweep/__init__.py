"""Sweeps: many runs that differ in some options."""

from foretrace.sweep._config import Sweep as Sweep
from foretrace.sweep._run import SweepResult as SweepResult
from foretrace.sweep._run import WorkerError as WorkerError
from foretrace.sweep._run import run as run
from foretrace.sweep._trials import Trial as Trial
