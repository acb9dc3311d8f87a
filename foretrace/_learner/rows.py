"""Learning row by row, for learners with a second-order step or a least-squares head.

A row is a chunk of one step, for which the Jacobian of the predictions is computed. A chunk is a
scan over its rows, so it gives the same result as its rows one by one.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from foretrace._engine.carry import is_finite
from foretrace._engine.correction import corrected
from foretrace._engine.data import Data
from foretrace._engine.forward import run
from foretrace._engine.layers import each_stream
from foretrace._learner.error_moments import Errors, clipped, init_errors, noted
from foretrace._learner.kalman import Kalman
from foretrace._learner.measurement import measurement_of
from foretrace._learner.nodes import gathered, node_groups, scattered
from foretrace._learner.optimizer import norm, updated
from foretrace._learner.options import Options
from foretrace._learner.state import Info, LearnerState
from foretrace._learner.wrappers import holding, under
from foretrace._network import AbstractNetwork
from foretrace._recurrence.chunk import Carry
from foretrace._types import Array, Float, PyTree
from foretrace.heads import HeadState


class Seen(NamedTuple):
    """Values of a row for inspection.

    Args:
        loss: weighted loss, averaged over streams.
        outputs: outputs before the row was learned.
        gradient: gradient of the loss. For a second-order step, it is the gradient of half the
            squared errors, stored separately for each node (`nodes.py`).
    """

    loss: Float[Array, ""]
    outputs: Float[Array, "..."]
    gradient: PyTree[Array]


class Passed(NamedTuple):
    """Intermediate values of a row, which are not differentiated.

    Args:
        features: features that the head or decoder read.
        predictions: predicted numbers or probabilities; with a least-squares head, its scores.
        targets: targets of the predictions.
        outputs: outputs of the network.
        y: label.
        weight: weight of the row.
        after: carry after the row.
    """

    features: Float[Array, "*B F"]
    predictions: Float[Array, "*B O"]
    targets: Float[Array, "*B O"]
    outputs: Float[Array, "*B O"]
    y: Array
    weight: Float[Array, "*B"]
    after: Any


class Rows:
    """Learning row by row, by a second-order step, a least-squares head, or both.

    A row is a chunk of one step. Its mask holds its weight, which is 0 for a row without a label.

    Args:
        learner: learner with a second-order step or a least-squares head.
        steering: number of outputs, counted from the first, whose errors train the network.
            Default: all.
    """

    def __init__(self, learner: Options, steering: int | None = None):
        self.steering = steering
        network, self.rule, self.loss = learner.network, learner.rule, learner.loss
        self.head, self.batch_size = learner.head, learner.batch_size
        self.output_size, self.measurement = network.output_size, measurement_of(learner.loss)
        front = () if learner.trains_encoder(1) else network.in_front_of_cells
        held = partial(under, front if self.head is None else (*front, ".decoder"))
        self.nodes = node_groups(network, held(network))
        self.optimizer = learner.optimizer
        if not isinstance(self.optimizer, Kalman):
            self.optimizer = holding(self.optimizer, held)

    def init(self, network: AbstractNetwork) -> tuple[Any, HeadState | None, Errors]:
        """Return the initial states of optimiser and head, and zero moments of the errors."""
        sizes = network.feature_size, self.output_size, network.dtype
        head = None if self.head is None else self.head.init(*sizes)
        errors = init_errors(self.batch_size or 1, self.output_size, network.dtype)
        return self.optimizer.init(self._parameters(network)), head, errors

    def read(self, network: AbstractNetwork, head: HeadState | None) -> Callable[[Array], Array]:
        """Return the function from the features of a step to the outputs."""
        if self.head is None or head is None:
            return network.decoder
        scores, sharpness = partial(self.head.scores, head), self.head.sharpness
        return lambda f: self.measurement.outputs(scores(f), sharpness)

    def learn(self, state: LearnerState, data: Data, *, end: bool) -> tuple[Any, Info, bool]:
        """Learn from the rows of a chunk in turn; return the results of `Chunks.learn`."""
        assert data.ys is not None, "rows are learned with their targets"
        # For targets that do not fit, the loss itself raises the error.
        time, output = data.xs.ndim - 2, jax.ShapeDtypeStruct((self.output_size,), data.xs.dtype)
        target = jax.ShapeDtypeStruct(data.ys.shape[time + 1 :], data.ys.dtype)
        jax.eval_shape(self.loss, output, target)
        weights = jnp.ones(data.xs.shape[:-1]) if data.mask is None else data.mask
        # A negative weight becomes NaN, so that the call is refused.
        weights = jnp.where(weights < 0, jnp.nan, weights.astype(data.xs.dtype))
        rows = jax.tree.map(
            lambda leaf: jnp.expand_dims(jnp.moveaxis(leaf, time, 0), time + 1),
            Data(data.xs, data.ys, weights, data.reset),
        )

        def one(before: tuple[LearnerState, Any], row: Data) -> tuple[Any, tuple[Array, Array]]:
            if data.mask is None:
                after, seen = self.labelled_row(before[0], row)
            else:
                # A branch, because a row without labels costs a fraction of a row with labels.
                kinds = self.labelled_row, self.unlabelled_row
                after, seen = lax.cond(jnp.any(row.mask != 0), *kinds, before[0], row)
            gradient = jax.tree.map(jnp.add, before[1], seen.gradient)
            return (after, gradient), (seen.loss, seen.outputs)

        none = jax.tree.map(jnp.zeros_like, self._parameters(state.network))
        # Values that rows do not change are kept out of loops and branches.
        bare: Any = state
        start = (bare._replace(key=None, step=None, skipped=None), none)
        if rows.xs.shape[0] == 1:
            # A single row has no loop in its program, because the program may be exported as a
            # plain graph.
            (after, gradient), seen = one(start, jax.tree.map(lambda leaf: leaf[0], rows))
            losses, outputs = jax.tree.map(lambda leaf: leaf[None], seen)
        else:
            (after, gradient), (losses, outputs) = lax.scan(one, start, rows)
        moved = jax.tree.map(jnp.subtract, after.network, state.network)
        # The state of an Optax optimiser may be infinite, for example the best loss so far, but its
        # update may not.
        covariances = after.opt_state if isinstance(self.optimizer, Kalman) else None
        kept = is_finite((after.carry, covariances, after.head, after.errors))
        outputs = jnp.moveaxis(outputs, 0, time)
        after = after._replace(key=state.key, step=state.step, skipped=state.skipped)
        return after, Info(losses.sum(), outputs, norm(gradient), norm(moved), kept), False

    def unlabelled_row(self, before: LearnerState, row: Data) -> tuple[LearnerState, Seen]:
        """Update states and sensitivities by one row of every stream, without learning."""
        read = self.read(before.network, before.head)
        outputs, after = run(before.network, before.carry, row, rule=self.rule, readout=read)
        none = jax.tree.map(jnp.zeros_like, self._parameters(before.network))
        seen = Seen(jnp.zeros((), outputs.dtype), jnp.squeeze(outputs, -2), none)
        return before._replace(carry=after), seen

    def labelled_row(self, before: LearnerState, row: Data) -> tuple[LearnerState, Seen]:
        """Learn from one row of every stream."""
        assert before.errors is not None
        batched, head = self.batch_size is not None, before.head
        differentiate = partial(self.differentiate, before.network, head)
        out_axes = (0, Passed._make((0, 0, 0, 0, 0, 0, 1)))
        jacobian, passed = each_stream(differentiate, batched, (1, 0), out_axes)(before.carry, row)
        after, outputs = passed.after, passed.outputs
        if not batched:
            # From here on, a single stream is a batch of one stream; its carry is unchanged.
            alone = (jacobian, passed._replace(after=Carry(None, None)))
            jacobian, passed = jax.tree.map(lambda leaf: leaf[None], alone)
        known = passed.weight > 0
        found = jnp.where(known[:, None], passed.targets - passed.predictions, 0.0)
        found = clipped(before.errors, found)
        learned = before._replace(carry=after, errors=noted(before.errors, found, known))
        step = self.second_order if isinstance(self.optimizer, Kalman) else self._first_order
        learned, gradient = step(learned, jacobian, passed, found)
        if self.head is not None and head is not None:
            head = self.head.learn(head, passed.features, found, passed.weight)
            learned = learned._replace(head=head)
        return learned, Seen(self._loss(passed.outputs, passed), outputs, gradient)

    def _parameters(self, network: AbstractNetwork) -> Any:
        return gathered(self.nodes, network) if isinstance(self.optimizer, Kalman) else network

    def differentiate(
        self, network: AbstractNetwork, head: HeadState | None, carry: Carry, row: Data
    ) -> tuple[PyTree[Array], Passed]:
        """Return the Jacobian of one stream's predictions, and the values of its row."""
        assert row.ys is not None and row.mask is not None
        measurement, y, weight = self.measurement, row.ys[0], row.mask[0]

        def predict(network: AbstractNetwork) -> tuple[Array, Passed]:
            features, after = run(network, carry, row, rule=self.rule, readout=lambda f: f)
            f = features[0]
            if self.head is None or head is None:
                outputs = network.decoder(f)
                predictions = measurement.predictions(outputs, y)
                targets = measurement.targets(y, outputs)
            else:
                predictions = self.head.scores(head, f)
                outputs = measurement.outputs(predictions, self.head.sharpness)
                targets = measurement.centred(y, predictions)
            passed = Passed(f, predictions, targets, outputs, y, weight, after)
            return predictions[: self.steering], lax.stop_gradient(passed)

        # The rule has stopped the other gradients, and the past is attached. The automatic
        # derivative of this row, with one cotangent for each output, is therefore the Jacobian
        # through all earlier rows.
        predictions, pull, passed = jax.vjp(predict, network, has_aux=True)
        (jacobian,) = jax.vmap(pull)(jnp.eye(len(predictions), dtype=predictions.dtype))
        return jacobian, passed

    def _loss(self, outputs: Float[Array, "B O"], passed: Passed) -> Float[Array, ""]:
        """Return the weighted loss, averaged over streams; a row without weight counts as zero."""
        losses = jax.vmap(self.loss)(outputs, passed.y)
        return jnp.where(passed.weight > 0, losses * passed.weight, 0.0).mean()

    def _first_order(
        self, before: LearnerState, jacobian: PyTree[Array], passed: Passed, found: Array
    ) -> tuple[LearnerState, Any]:
        """Update by an Optax optimiser, while the head is constant."""
        assert self.head is not None
        sharpness = self.head.sharpness

        def loss(scores: Array) -> Array:
            # Not a product, so that rows that do not count have no derivative either.
            seen = jnp.where((passed.weight > 0)[:, None], scores, lax.stop_gradient(scores))
            return self._loss(self.measurement.outputs(seen, sharpness), passed)

        value, slope = jax.value_and_grad(loss)(passed.predictions)
        gradient = jax.tree.map(lambda leaf: jnp.tensordot(slope, leaf, 2), jacobian)
        network, opt_state, _ = updated(
            self.optimizer, before.network, before.opt_state, gradient, value=value
        )
        return before._replace(network=network, opt_state=opt_state), gradient

    def second_order(
        self, before: LearnerState, jacobian: Any, passed: Passed, found: Array, late: Any = 0.0
    ) -> tuple[LearnerState, Any]:
        """Update by the Kalman filter. Rows are scaled by the root of their weight."""
        root = jnp.sqrt(passed.weight)
        nodes = [
            (jnp.expand_dims(root, (1, 2, 3)) * each).reshape(-1, *each.shape[2:])
            for each in gathered(self.nodes, jacobian, axes=2)
        ]
        found = root[:, None] * found
        spread = jnp.zeros((len(root), len(root)), found.dtype)
        if self.head is not None and before.head is not None:
            spread = self.head.variance(before.head, passed.features) * (root[:, None] * root[None])
        changes, opt_state = self.optimizer.update(
            before.opt_state, nodes, found, before.errors, spread, passed.weight > 0, late
        )
        change = scattered(self.nodes, changes, before.network)
        network, carry = jax.tree.map(jnp.add, before.network, change), before.carry
        assert carry is not None
        if (limit := self.optimizer.state_correction) is not None:
            carry = corrected(
                before.network, change, carry, limit, batched=self.batch_size is not None
            )
        gradient = [-jnp.tensordot(found.reshape(-1), each, 1) for each in nodes]
        return before._replace(network=network, opt_state=opt_state, carry=carry), gradient
