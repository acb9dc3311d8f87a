"""Price of a GPU's fast matrix products for the gradient: `python -m benchmarks.engine.precision`.

Gradients of random sequences are compared with those in float64: relative error and cosine, of all
parameters and of the recurrences' eigenvalues and gains alone. A CPU multiplies in float32 with any
setting. In records with "rounded before", the operands were rounded on a CPU.
"""

from functools import cache, partial

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

import foretrace as ft
from benchmarks import ledger
from benchmarks.networks import lru_network, streamed_gradient
from foretrace.experiment._precision import matrix_products

PRECISIONS = ("float32", "tensorfloat32", "bfloat16")
NETWORKS = {"copy": (64, 128, 0.0, 1.0), "images": (128, 256, 0.9, 0.999)}
"""Modules, features and eigenvalue ring of the paper's networks for copy and images."""
WAYS = {"BPTT, whole": (ft.BPTT, None), "online, whole": (ft.ONLINE, None)}
WAYS |= {"online, chunks of 64": (ft.ONLINE, 64), "online, row by row": (ft.ONLINE, 1)}
STREAMS, LENGTH, INPUTS, OUTPUTS = 4, 512, 8, 10


def sequence_gradient(name, way, dtype):
    modules, features, low, high = NETWORKS[name]
    sizes = {"size": features, "modules": modules, "depth": 4}
    with jax.enable_x64(False):
        network = lru_network(INPUTS, OUTPUTS, **sizes, r_min=low, r_max=high)
        xs = jax.random.normal(jax.random.key(1), (STREAMS, LENGTH, INPUTS))
        ys = jax.random.randint(jax.random.key(2), (STREAMS, LENGTH), 0, OUTPUTS)
    network, xs = jax.tree.map(lambda leaf: leaf.astype(dtype), (network, xs))
    rule, chunk = WAYS[way]
    given = {"chunk": chunk or LENGTH, "rule": rule, "loss": ft.losses.softmax_cross_entropy}
    carry = ft.init_carry(network, rule, STREAMS)
    return jax.jit(partial(streamed_gradient, **given))(network, carry, xs, ys)[0]


@cache
def exact_gradient(name, way):
    return sequence_gradient(name, way, jnp.float64)


def difference(grads, exact):
    """Return relative error and cosine."""
    a, b = (ravel_pytree(tree)[0].astype(jnp.float64) for tree in (grads, exact))
    norm = jnp.linalg.norm
    error, cosine = norm(a - b) / norm(b), a @ b / (norm(a) * norm(b))
    return float(f"{error:.3g}"), round(float(cosine), 7)


def recurrent(network):
    cell = network.blocks.cell
    return [getattr(cell, name) for name in cell.slow_parameters]


def cells():
    """Return the cells."""
    products = {"products": "of the device", "precision": PRECISIONS}
    return ledger.grid(network=NETWORKS, way=WAYS, **products)


def measure(cell):
    """Return the difference from the gradient in float64."""
    with jax.enable_x64(True):
        exact = exact_gradient(cell["network"], cell["way"])
        with matrix_products(cell["precision"]):
            grads = sequence_gradient(cell["network"], cell["way"], jnp.float32)
        error, cosine = difference(grads, exact)
        of_recurrence = difference(recurrent(grads), recurrent(exact))[0]
    return {
        "relative_error": error,
        "cosine": cosine,
        "relative_error_of_recurrences": of_recurrence,
    }


if __name__ == "__main__":
    ledger.run(__doc__, "precision", cells, measure)
