"""How exact matrix products are. States, sensitivities and all sums stay float32."""

import contextlib
from typing import Literal

import jax

MatmulPrecision = Literal["float32", "tensorfloat32", "bfloat16"]
_NAMES = {"float32": "highest", "tensorfloat32": "tensorfloat32", "bfloat16": "BF16_BF16_F32"}


def matrix_products(precision: MatmulPrecision | None) -> contextlib.AbstractContextManager:
    """Return a context that compiles matrix products with rounded operands.

        float32         23 bits behind the leading one, not rounded
        tensorfloat32   10 bits
        bfloat16        7 bits

    Sums are float32 in all. A device that has no such products computes in float32, as CPUs do.
    From Python, `jax.default_matmul_precision` is the same.

    Args:
        precision: as JAX does by default on the device if None: tensorfloat32 on NVIDIA's GPUs
            since 2020.

    >>> with matrix_products("bfloat16"):
    ...     jax.config.jax_default_matmul_precision
    'BF16_BF16_F32'
    """
    if precision is None:
        return contextlib.nullcontext()
    return jax.default_matmul_precision(_NAMES[precision])
