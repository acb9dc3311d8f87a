"""Predicted errors: what the future will say about a state, guessed from the state by a map that is learned online.

The paper's rule leaves out one thing: the error of later steps that reaches the layers below through the memory of a
layer. For the states h of a layer, with g_t the error of step t at h_t and J_t = dh_t/dh_{t-1},

    G_t = J_{t+1} (g_{t+1} + G_{t+1})

is what is missing at step t. Here a linear map of the state predicts it, and the prediction is added to the error that
goes down to the inputs of step t, and to nothing else:

    Ghat_t = W phi_t,  phi_t = (1, Re h_t, Im h_t),  W = argmin sum_t |G_t - W phi_t|^2 + ridge

With W = 0 this is the paper's rule, with Ghat = G backpropagation through time. The sums that W is solved from are
exact and need no past: with a virtual weight V = 0 in h_{t+1} = step(theta, h_t + V phi_t, x_{t+1}),

    sum_t G_t phi_t^T = dL/dV

so that V is one more coefficient of the recurrence, with a sensitivity as all have. At G_t all layers above contribute,
their own predictions included.

Related: synthetic gradients (Jaderberg et al., Decoupled neural interfaces, 2017) and BP(lambda) (Pemberton and Costa,
2024) learn such a map by temporal differences; this one is fitted to the errors themselves.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax

from foretrace._cells.abstract import AbstractCell, AbstractDiagonalCell, Coefficients
from foretrace._network import Network
from foretrace._recurrence.unroll import also_differentiate, each_step, past, states
from foretrace._rule import LearningRule
from foretrace._types import Array, Bool, Float, State, States

RIDGE = 1e-2
"""Ridge of the fit, as a share of the mean square of a feature."""


_PROBE = "predicted error "


class Predictor(NamedTuple):
    """The map of each layer and the sums that the next one is solved from; P real numbers of a state, F = P + 1.

    Args:
        weights: W, transposed.
        gram: sum of phi phi^T, mean over streams.
        cross: sum of phi G^T, mean over streams.
        fitted: whether the weights were solved from errors of the present parameters.
    """

    weights: Float[Array, "D F P"]
    gram: Float[Array, "D F F"]
    cross: Float[Array, "D F P"]
    fitted: Bool[Array, ""]


class Guess(NamedTuple):
    """What a run needs of a predictor: its weights, and the virtual weights V (transposed), which are zero."""

    weights: Float[Array, "... F P"]
    probe: Float[Array, "... F P"]


def init_predictor(network: Network) -> Predictor:
    """Return the predictor that predicts nothing."""
    h = jax.eval_shape(network.block(0).cell.init_state)
    real = jax.eval_shape(features, h)
    depth, size = network.depth, real.shape[0]
    zeros = jnp.zeros((depth, size, size - 1), real.dtype)
    return Predictor(zeros, jnp.zeros((depth, size, size), real.dtype), zeros, jnp.zeros((), bool))


def added(predictor: Predictor, gram: Array, cross: Array) -> Predictor:
    """Return the predictor with what a chunk adds to its sums."""
    return predictor._replace(gram=predictor.gram + gram, cross=predictor.cross + cross)


def fitted(predictor: Predictor) -> Predictor:
    """Return the predictor with weights solved from its sums, and these at zero again."""
    size = predictor.gram.shape[-1]

    def solve(gram: Array, cross: Array) -> Array:
        # Without any data: zero divided by something.
        ridge = RIDGE * jnp.trace(gram) / size + jnp.finfo(gram.dtype).tiny
        return jnp.linalg.solve(gram + ridge * jnp.eye(size, dtype=gram.dtype), cross)

    weights = jax.vmap(solve)(predictor.gram, predictor.cross)
    nothing = jax.tree.map(jnp.zeros_like, predictor)
    return nothing._replace(weights=weights, fitted=jnp.ones((), bool))


def next_round(predictor: Predictor) -> Predictor:
    """Return the predictor after a round of sequences with the same parameters.

    Fitted in one round, used in the next; then the parameters change, and it begins with nothing again: errors of
    parameters that were are no guide, not even a few updates later (docs/credit.md).
    """
    nothing = jax.tree.map(jnp.zeros_like, predictor)
    return jax.tree.map(lambda new, old: jnp.where(predictor.fitted, new, old), nothing, fitted(predictor))


def features(h: State) -> Float[Array, "F"]:
    """Return phi: a one, and the real numbers of a state."""
    parts = [part for leaf in jax.tree.leaves(h) for part in _parts(leaf)]
    return jnp.concatenate([jnp.ones((1,), parts[0].dtype), *parts])


def watched(cell: AbstractCell, rule: LearningRule) -> AbstractCell:
    """Return the cell with the virtual weights among its coefficients, if the rule predicts errors."""
    if not rule.predicted:
        return cell
    if isinstance(cell, AbstractDiagonalCell):
        return _WatchedDiagonalCell(cell=cell, input_size=cell.input_size, state_size=cell.state_size)
    sizes = {"input_size": cell.input_size, "state_size": cell.state_size}
    return _WatchedCell(cell=cell, reads_others=rule.others, **sizes)


def watch(theta: Coefficients, h: State, probe: Float[Array, "F P"]) -> Coefficients:
    """Return the coefficients of a watched cell with these virtual weights."""
    # A derivative of a complex state is read as Re[c dh]: with V = V_re - i V_im, its real numbers are those of c.
    rows = jax.vmap(lambda numbers: _state(h, numbers, -1))(probe)
    own = {f"{_PROBE}{k}": leaf.T for k, leaf in enumerate(jax.tree.leaves(rows))}
    return theta._replace(feedforward=theta.feedforward | own)


def unroll_watched(
    cell: AbstractCell,
    theta: Coefficients,
    h: State,
    zs: Float[Array, "C H"],
    weights: Float[Array, "F P"],
    rule: LearningRule,
    reset: Bool[Array, "C"] | None,
    live: Bool[Array, "C"] | None,
    *,
    ends: bool,
    share: float,
) -> tuple[States, States, tuple[Array, Array], Float[Array, "F F"]]:
    """Run a watched cell over a chunk, with predicted errors.

    Args:
        cell: a watched cell.
        theta: its coefficients.
        h: the state before the chunk, with the derivative that `rule` lets through.
        zs: inputs of the recurrence.
        weights: of the prediction.
        rule: what is open to the derivative.
        reset: steps that start an episode.
        live: steps that count or are followed by one that does; all if None. What is no more than padding predicts
            nothing and teaches nothing.
        ends: the sequence ends with this chunk, so that its last state has no future.
        share: of this stream in the loss that is differentiated.

    Returns:
        `(hs, emitted)` as `unroll`, the inputs of the watched cell, and the sum of phi phi^T.
    """
    assert isinstance(cell, _WatchedCell | _WatchedDiagonalCell)
    bare = lax.stop_gradient(_bare(theta))
    values = states(cell.cell, bare, *lax.stop_gradient((h, zs)), rule, reset)
    live = jnp.ones(len(zs), bool) if live is None else live
    # The rows of the fit: also the last states of episodes, whose error is zero, since they do not know what they are.
    seen = jnp.where(live[:, None], jax.vmap(features)(past(cell.cell, values, h, None)), 0)
    before = seen if reset is None else jnp.where(reset[:, None], 0, seen)
    hs = states(cell, theta, h, (zs, before), rule, reset, known=values)
    followed = jnp.append(live[1:], not ends)
    predicted = jnp.where(followed[:, None], share * (jax.vmap(features)(values) @ weights), 0)
    errors = jax.vmap(lambda numbers: _state(cell.init_state(), numbers, 1))(predicted)
    if rule.inputs:
        # Within the chunk errors go through time as they are: only what comes after it is predicted.
        alone = states(cell.cell, bare, lax.stop_gradient(h), zs, rule, reset, known=values)
        path, errors = jax.tree.map(lambda leaf: leaf[-1], (alone, errors))
        emitted = _add_errors(hs, path, errors)
    else:
        path = each_step(cell.cell, bare, hs, h, zs, reset)
        emitted = _add_errors(also_differentiate(hs, path), path, errors)
    return hs, emitted, (zs, before), seen.T @ seen


class _WatchedCell(AbstractCell):
    cell: AbstractCell
    input_size: int = eqx.field(static=True)
    state_size: int = eqx.field(static=True)
    reads_others: bool = eqx.field(static=True)

    @property
    def independent(self) -> bool:
        return self.cell.independent

    def coefficients(self) -> Coefficients:
        return _watched_coefficients(self.cell)

    def init_state(self) -> State:
        return self.cell.init_state()

    def step(self, theta: Coefficients, own: State, others: State, x: Any) -> State:
        z, before = x
        moved = _moved(theta, own, before)
        others = jax.tree.map(jnp.add, others, moved) if self.reads_others else others
        return self.cell.step(_bare(theta), jax.tree.map(jnp.add, own, moved), others, z)


class _WatchedDiagonalCell(AbstractDiagonalCell):
    cell: AbstractDiagonalCell
    input_size: int = eqx.field(static=True)
    state_size: int = eqx.field(static=True)

    @property
    def independent(self) -> bool:
        return True

    def coefficients(self) -> Coefficients:
        return _watched_coefficients(self.cell)

    def init_state(self) -> State:
        return self.cell.init_state()

    def decay_and_drive(self, theta: Coefficients, x: Any) -> tuple[Array, Array]:
        z, before = x
        a, b = self.cell.decay_and_drive(_bare(theta), z)
        # V phi is zero, so a has no derivative from it, and its value need not be computed.
        return a, b + lax.stop_gradient(a) * _moved(theta, b, before)


def _watched_coefficients(cell: AbstractCell) -> Coefficients:
    h = cell.init_state()
    phi = features(h)
    return watch(cell.coefficients(), h, jnp.zeros((phi.size, phi.size - 1), phi.dtype))


def _moved(theta: Coefficients, h: State, before: Float[Array, "F"]) -> State:
    """Return V phi, which is zero and has a derivative."""
    structure = jax.tree.structure(h)
    virtual = [theta.feedforward[f"{_PROBE}{k}"] for k in range(structure.num_leaves)]
    return structure.unflatten([v @ before.astype(v.dtype) for v in virtual])


def _bare(theta: Coefficients) -> Coefficients:
    own = {name: leaf for name, leaf in theta.feedforward.items() if not name.startswith(_PROBE)}
    return theta._replace(feedforward=own)


def _parts(leaf: Array) -> list[Array]:
    return [leaf.real, leaf.imag] if jnp.iscomplexobj(leaf) else [leaf]


def _state(like: State, numbers: Float[Array, "P"], sign: int) -> State:
    """Return the state, or its conjugate, that has these real numbers."""
    leaves, structure = jax.tree.flatten(like)
    made, at = [], 0
    for leaf in leaves:
        n, real = leaf.size, numbers[at : at + leaf.size]
        if jnp.iscomplexobj(leaf):
            made.append(lax.complex(real, sign * numbers[at + n : at + 2 * n]))
        else:
            made.append(real)
        at += n * len(_parts(leaf))
    return structure.unflatten(made)


@jax.custom_vjp
def _add_errors(emitted: States, path: Any, errors: Any) -> States:
    """Return `emitted`; backward, errors are added to what reaches `path`."""
    return emitted


def _add_errors_forward(emitted: States, path: Any, errors: Any) -> tuple[States, Any]:
    return emitted, errors


def _add_errors_backward(errors: Any, cotangent: States) -> tuple[States, Any, Any]:
    return cotangent, errors, jax.tree.map(jnp.zeros_like, errors)


_add_errors.defvjp(_add_errors_forward, _add_errors_backward)
