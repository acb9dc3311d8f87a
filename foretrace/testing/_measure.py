"""Measurements of a cell between two linear maps."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.flatten_util import ravel_pytree

from foretrace._cells.abstract import AbstractCell, AbstractDiagonalCell, Coefficients
from foretrace._compiler import unoptimised
from foretrace._engine.carry import init_carry
from foretrace._engine.gradient import gradient
from foretrace._network import Block, Decoder, Linear, Network
from foretrace._recurrence.scan import Method, linear_scan
from foretrace._rule import BPTT, HYBRID, RESERVOIR, RTRL, SNAP1, SPATIAL, TRUNCATED, LearningRule
from foretrace._types import Array, Float
from foretrace.losses import squared_error
from foretrace.testing._definitions import (
    Open,
    finite_difference,
    gradient_by_definition,
    plain_states,
    rtrl_by_definition,
    snap1_by_definition,
)

EVERY_RULE = (BPTT, RTRL, SNAP1, HYBRID, TRUNCATED, SPATIAL, RESERVOIR)


class Bare(Block):
    """A block that consists only of its cell, padded to equal input and output sizes."""

    def __init__(self, cell: AbstractCell):
        self.norm, self.cell, self.glu = None, cell, None
        self.dropout, self.norm_place = 0.0, "none"

    def before(self, x: Float[Array, "H"]) -> Float[Array, "I"]:
        """Return the features that the cell reads."""
        return x[: self.cell.input_size]

    def after(self, x: Float[Array, "H"], y: Float[Array, "O"], keep: Any) -> Float[Array, "H"]:
        """Return the output of the cell, padded with zeros."""
        return jnp.zeros_like(x).at[: y.size].set(y)


class Alone(Network):
    """A cell between two linear maps: the smallest network that public functions accept."""

    def __init__(self, cell: AbstractCell, random: np.random.Generator):
        self.input_size, self.output_size, self.depth = 2, 2, 1
        self.cumulative_mean = False
        self.model_size = max(cell.input_size, cell.output_size)
        key = jax.random.key(0)
        below = jax.eval_shape(lambda: Linear(2, self.model_size, key=key))
        above = jax.eval_shape(lambda: Decoder(self.model_size, 2, None, key=key))
        self.encoder, self.decoder = normal_like(random, below), normal_like(random, above)
        self.blocks = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[None]), Bare(cell))


class Step(NamedTuple):
    """Jacobians of one step, gradient of the initial state, and steps by each scan."""

    own: tuple[Array, Array]
    others: tuple[Array, Array]
    theta: tuple[Array, Array]
    initial: AbstractCell
    steps: Any
    scans: dict[str, Any]


def differentiate_step(
    cell: AbstractCell, offset: Coefficients, states: list[Any], xs: Array
) -> Step:
    """Differentiate one step with respect to each argument, along real and imaginary axes."""
    (own, unravel), (others, _) = (ravel_pytree(h) for h in states)
    theta, unravel_theta = ravel_pytree(
        jax.tree.map(lambda c, z: c + 0.1 * z, cell.coefficients(), offset)
    )

    def step(own: Array, others: Array, theta: Array) -> Array:
        return ravel_pytree(cell.step(unravel_theta(theta), unravel(own), unravel(others), xs[0]))[
            0
        ]

    def jacobians(f: Callable[[Array], Array], at: Array) -> tuple[Array, Array]:
        basis = jnp.eye(at.size, dtype=at.dtype)
        along = jax.vmap(lambda v: jax.jvp(f, (at,), (v,))[1], out_axes=1)
        return along(basis), along(1j * basis) if jnp.iscomplexobj(at) else along(basis)

    scans, steps = {}, None
    if isinstance(cell, AbstractDiagonalCell):
        steps = plain_states(cell, unravel_theta(theta), xs)
        a, b = jax.vmap(lambda x: cell.decay_and_drive(unravel_theta(theta), x))(xs)
        for method in get_args(Method):
            scans[method] = linear_scan(a, b, cell.init_state(), method=method)
    return Step(
        jacobians(lambda own: step(own, others, theta), own),
        jacobians(lambda others: step(own, others, theta), others),
        jacobians(lambda theta: step(own, others, theta), theta),
        jax.grad(
            lambda cell: sum(jnp.sum(h.real + h.imag) for h in jax.tree.leaves(cell.init_state()))
        )(cell),
        steps,
        scans,
    )


class Run(NamedTuple):
    """Results of `gradient`, summed over the chunks of a sequence."""

    loss: Any
    grads: Any
    carry: Any


def every_way(
    network: Network,
    xs: Array,
    ys: Array,
    resets: Array,
    fresh: Array,
    rule: LearningRule,
    size: int,
) -> dict[str, Run]:
    """Run a rule over a sequence in several ways. The first axis has the patterns of resets.

    Args:
        network: network of one layer.
        xs: inputs.
        ys: targets.
        resets: patterns of resets.
        fresh: patterns for which each of the "chunks" is a separate sequence: no carry is passed
            on, and no reset is given.
        rule: the rule.
        size: number of steps in a chunk. The last chunk has the remaining steps.

    Returns:
        A dictionary of results. "whole" is the whole sequence at once, and "singly" is in chunks of
        one step. "chunks" is in longer chunks, for rules that carry a sensitivity and do not depend
        on the chunk. `RTRL` of independent modules equals `SNAP1`, and is run only at once.
    """

    def run(carry: Any, xs: Array, ys: Array, reset: Array) -> Run:
        return Run(*gradient(network, carry, xs, ys, rule=rule, loss=squared_error, reset=reset))

    def add(total: Run, more: Run) -> Run:
        loss, grads = jax.tree.map(jnp.add, total[:2], more[:2])
        return Run(loss, grads, more.carry)

    nothing = Run(jnp.zeros(()), jax.tree.map(jnp.zeros_like, network), init_carry(network, rule))

    def in_chunks(size: int, reset: Array, fresh: Array) -> Run:
        def chunk(total: Run, now: tuple[Array, ...]) -> tuple[Run, None]:
            x, y, starts = now
            carry = optax.tree.where(fresh, nothing.carry, total.carry)
            return add(total, run(carry, x, y, starts & ~fresh)), None

        # Equal chunks are run in a loop, so that one program serves all.
        data, end = (xs, ys, reset), len(xs) - len(xs) % size
        equal = tuple(leaf[:end].reshape(-1, size, *leaf.shape[1:]) for leaf in data)
        total = lax.scan(chunk, nothing, equal)[0]
        return chunk(total, tuple(leaf[end:] for leaf in data))[0] if end < len(xs) else total

    def ways(now: tuple[Array, Array]) -> dict[str, Run]:
        found = {"whole": run(None, xs, ys, now[0])}
        if rule == RTRL and network.block(0).cell.independent:
            return found
        found["singly"] = in_chunks(1, now[0], jnp.array(False))
        if rule.carried and not rule.inputs:
            found["chunks"] = in_chunks(size, *now)
        return found

    # A loop over patterns instead of a batch gives the same numbers from a smaller program.
    return lax.map(ways, (resets, fresh))


class Definitions(NamedTuple):
    """Results of the reference definitions for several patterns of resets."""

    gradients: dict[str, Any]
    h: Any
    e: dict[str, Any]


def definitions(network: Network, xs: Array, ys: Array, resets: Array) -> Definitions:
    """Evaluate the reference definitions on a network of one layer."""
    cell, zs = layer_of(network, xs)
    oracles = {
        SNAP1.name: snap1_by_definition,
        "RTRL": snap1_by_definition if cell.independent else rtrl_by_definition,
    }
    rules = [rule for rule in EVERY_RULE if rule not in (BPTT, HYBRID)]
    # The rule is an argument, so that one program serves all rules except backpropagation.
    flags = (Open(rule.recurrent, rule.own, rule.others, rule.trains_cells) for rule in rules)
    opened = jax.tree.map(lambda *flag: jnp.array(flag), *flags)

    def for_one(reset: Array) -> Definitions:
        define = partial(gradient_by_definition, network, xs, ys, loss=squared_error, reset=reset)
        found = lax.map(lambda rule: define(rule=rule), opened)
        gradients = {r.name: jax.tree.map(lambda a, i=i: a[i], found) for i, r in enumerate(rules)}
        return Definitions(
            gradients | {BPTT.name: define(rule=BPTT)},
            _last(plain_states(cell, cell.coefficients(), zs, reset)),
            {name: _last(oracle(cell, zs, reset)) for name, oracle in oracles.items()},
        )

    return lax.map(for_one, resets)


class Differences(NamedTuple):
    """Finite differences of the loss for each parameter, and of the last state along directions."""

    loss: Network
    state: Any


def differences(
    network: Network, directions: Network, along: Any, xs: Array, ys: Array
) -> Differences:
    """Compute derivatives of the plain recurrence without automatic differentiation.

    Args:
        network: network of one layer.
        directions: direction in which each parameter is moved, one at a time.
        along: directions of theta, stacked along the first axis.
        xs: inputs.
        ys: targets.
    """
    leaves, structure = jax.tree.flatten(network)

    def loss(amounts: Array) -> Array:
        pairs = zip(leaves, amounts, jax.tree.leaves(directions), strict=True)
        moved = structure.unflatten([a + s * d for a, s, d in pairs])
        cell, zs = layer_of(moved, xs)
        outputs = jax.vmap(cell.readout)(plain_states(cell, cell.coefficients(), zs), zs)
        outputs = jax.vmap(
            lambda y: moved.decoder(moved.block(0).after(jnp.zeros(moved.model_size), y, None))
        )(outputs)
        return jax.vmap(squared_error)(outputs, ys).sum()

    cell, zs = layer_of(network, xs)
    last = partial(
        finite_difference, lambda theta: _last(plain_states(cell, theta, zs)), cell.coefficients()
    )
    one_parameter = partial(finite_difference, loss, jnp.zeros(len(leaves)))
    slopes = structure.unflatten(list(lax.map(one_parameter, jnp.eye(len(leaves)))))
    return Differences(slopes, lax.map(last, along))


def layer_of(network: Network, xs: Array) -> tuple[AbstractCell, Array]:
    """Return the cell of a one-layer network and its inputs."""
    block = network.block(0)
    return block.cell, jax.vmap(lambda x: block.before(network.encoder(x)))(xs)


def normal_like(random: np.random.Generator, tree: Any) -> Any:
    """Sample standard normal numbers in the shape of a tree, by NumPy."""

    def draw(leaf: Any) -> Array:
        parts = random.normal(size=(2, *leaf.shape))
        return jnp.asarray(
            parts[0] + 1j * parts[1] if jnp.iscomplexobj(leaf) else parts[0], leaf.dtype
        )

    return jax.tree.map(draw, tree)


def measure(f: Callable[..., Any], *arguments: Any) -> Any:
    """Compile f, run it once and return NumPy arrays."""
    return jax.tree.map(np.asarray, jax.jit(f, compiler_options=unoptimised())(*arguments))


def _last(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[-1], tree)
