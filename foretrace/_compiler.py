"""Options of JAX's compiler for programs on a CPU; elsewhere its own are used."""

import jax
from jaxlib.version import __version_info__


def plain_loops() -> dict[str, bool]:
    """Return the option of plain loops, which compile in 60 % of the time.

    Versions from 0.11 on do not have it.
    """
    has_option = __version_info__ < (0, 11) and jax.default_backend() == "cpu"
    return {"xla_cpu_use_fusion_emitters": False} if has_option else {}


def unoptimised() -> dict[str, bool | int]:
    """Return options for a program that runs once: time to optimise it would be lost."""
    quick = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else {}
    return plain_loops() | quick
