"""Options of JAX's compiler for CPUs. Other devices use the defaults."""

import jax
from jaxlib.version import __version_info__


def plain_loops() -> dict[str, bool]:
    """Return the compiler option for plain loops, which compile in 60 % of the time.

    The result is empty for versions from 0.11 on, which do not have this option.
    """
    has_option = __version_info__ < (0, 11) and jax.default_backend() == "cpu"
    return {"xla_cpu_use_fusion_emitters": False} if has_option else {}


def unoptimised() -> dict[str, bool | int]:
    """Return compiler options for a program that runs once and is not worth optimising."""
    quick = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else {}
    if plain := plain_loops():
        quick["xla_cpu_parallel_codegen_split_count"] = 1
    return plain | quick
