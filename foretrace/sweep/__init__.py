"""Sweeps: many runs that differ in some options."""

from foretrace.sweep._config import Sweep as Sweep
from foretrace.sweep._run import run as run
from foretrace.sweep._run import study as study
