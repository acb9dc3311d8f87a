"""Time and memory of every way of running, beside the floor."""

from foretrace.bench._run import run as run
