"""Measurements: shapes, calls timed in turn, and the floor that no program can undercut."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

from foretrace._cells.lru import LRU
from foretrace._learner.learner import Learner
from foretrace._learner.optimizer import adamw
from foretrace._network import Network
from foretrace._rule import LearningRule
from foretrace._types import Array
from foretrace.experiment._cells import MakeCell
from foretrace.losses import softmax_cross_entropy

Call = Callable[[], Any]
DEPTH = 4


class Shape(NamedTuple):
    """Sizes of a network of four LRU layers and of its data.

    Args:
        batch: streams side by side.
        length: steps of a sequence.
        state: modules of a layer.
        model: features between layers.
        inputs: features of the input.
        outputs: features of the output.
    """

    batch: int
    length: int
    state: int
    model: int
    inputs: int
    outputs: int

    @property
    def maps(self) -> list[tuple[int, int]]:
        """Inputs and outputs of each linear map; complex B and C as real and imaginary part."""
        n, h = self.state, self.model
        return DEPTH * [(h, 2 * n), (2 * n, h), (h, 2 * h)] + [(self.inputs, h), (h, self.outputs)]


ShapeName = Literal["copy", "long", "long8", "scifar"]

SHAPES: dict[ShapeName, Shape] = {
    "copy": Shape(50, 48, 64, 128, 8, 14),
    "long": Shape(1, 1024, 128, 256, 3, 10),
    "long8": Shape(8, 1024, 128, 256, 3, 10),
    "scifar": Shape(100, 1024, 128, 256, 3, 10),
}
"""The paper's copy task; its images one at a time, eight at a time, and in its batch."""


def network(shape: Shape, cell: MakeCell | None = None) -> Network:
    """Draw the network of a shape; of LRUs if no other cell is given."""
    return Network(
        shape.inputs,
        shape.outputs,
        model_size=shape.model,
        depth=DEPTH,
        cell=LRU.factory(state_size=shape.state) if cell is None else cell,
        key=jax.random.key(0),
    )


def learner(
    shape: Shape, rule: LearningRule, *, cell: MakeCell | None = None, **options: Any
) -> Learner:
    """Return the learner of a shape, with the package's optimiser."""
    made, loss = network(shape, cell), softmax_cross_entropy
    return Learner(made, rule=rule, optimizer=adamw(1e-3), loss=loss, warn=False, **options)


def data(shape: Shape, *front: int) -> tuple[Array, Array]:
    """Draw inputs and targets."""
    xs = jax.random.normal(jax.random.key(1), (*front, shape.inputs))
    return xs, jax.random.randint(jax.random.key(2), front, 0, shape.outputs)


def timed(calls: Mapping[str, Call], rounds: int) -> dict[str, list[float]]:
    """Time warm calls in turn (A B A B ...), so that noise disturbs all alike; in seconds."""
    for call in calls.values():
        jax.block_until_ready(call())
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            jax.block_until_ready(call())
            seconds[name].append(time.perf_counter() - start)
    return seconds


def ratio(seconds: Mapping[str, list[float]], over: str, under: str) -> float:
    """Return the median of the ratios of rounds.

    >>> ratio({"a": [2.0, 9.0, 4.0], "b": [1.0, 3.0, 2.0]}, "a", "b")
    2.0
    """
    return statistics.median(a / b for a, b in zip(seconds[over], seconds[under], strict=True))


def products(shape: Shape) -> list[tuple[int, int, int]]:
    """List a training step's matrix products (m, k, n): each map forward, and twice backward.

    >>> len(products(SHAPES["copy"]))  # nothing is asked for the error of the network's input
    41
    """
    rows = shape.batch * shape.length
    found = []
    for number, (k, n) in enumerate(shape.maps):
        encoder = number == len(shape.maps) - 2
        found += [(rows, k, n), (k, rows, n)] + ([] if encoder else [(rows, n, k)])
    return found


def operations(found: list[tuple[int, int, int]]) -> int:
    """Count multiplications and additions of matrix products."""
    return sum(2 * m * k * n for m, k, n in found)


def products_alone(shape: Shape) -> Call:
    """Return a call that does the matrix products of a training step, and nothing else."""
    pairs = [
        (
            jax.random.normal(jax.random.key(i), (m, k)),
            jax.random.normal(jax.random.key(i + 1), (k, n)),
        )
        for i, (m, k, n) in enumerate(products(shape))
    ]
    run = jax.jit(lambda pairs: [a @ b for a, b in pairs])
    return lambda: run(pairs)


def copy_of(size: int) -> Call:
    """Return a call that copies an array of this number of bytes."""
    run, values = jax.jit(lambda x: x + 1), jnp.zeros(max(1, size // 4))
    return lambda: run(values)


def product_rate(rounds: int) -> float:
    """Return the rate of large float32 matrix products, in operations per second."""
    size = 1024 if jax.default_backend() == "cpu" else 8192
    a = jax.random.normal(jax.random.key(0), (size, size))
    run = jax.jit(jnp.matmul)
    seconds = timed({"product": lambda: run(a, a)}, rounds)["product"]
    return 2 * size**3 / statistics.median(seconds)


def bytes_of(tree: Any) -> int:
    """Return the bytes of all arrays."""
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))
