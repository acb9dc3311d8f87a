"""Precision of matrix products. States, sensitivities and all sums stay float32."""

import contextlib
from typing import Literal

import jax

MatmulPrecision = Literal["float32", "tensorfloat32", "bfloat16"]
_NAMES = {"float32": "highest", "tensorfloat32": "tensorfloat32", "bfloat16": "BF16_BF16_F32"}


def matrix_products(precision: MatmulPrecision | None) -> contextlib.AbstractContextManager:
    """Return a context in which matrix products are compiled with operands of this precision.

       float32         24 bits of precision, not rounded
        tensorfloat32   11 bits
        bfloat16        8 bits

    Products are summed in float32 in all three cases. A device without such products, such as a
    CPU, computes in float32. From Python, `jax.default_matmul_precision` does the same.

    Args:
        precision: name of the precision. None means JAX's default for the device, which is
            tensorfloat32 on NVIDIA GPUs since 2020.

    >>> with matrix_products("bfloat16"):
    ...     jax.config.jax_default_matmul_precision
    'BF16_BF16_F32'
    """
    if precision is None:
        return contextlib.nullcontext()
    return jax.default_matmul_precision(_NAMES[precision])
