"""The step of one row: predicted, then learned by a second-order step, by least squares, or both.

A chunk is a scan over its rows: it gives the same result as its rows one by one.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from foretrace._engine.correction import corrected
from foretrace._engine.data import Data
from foretrace._engine.forward import run
from foretrace._engine.gradient import Loss
from foretrace._engine.layers import each_stream
from foretrace._learner.error_moments import Errors, clipped, init_errors, noted
from foretrace._learner.kalman import Kalman
from foretrace._learner.measurement import measurement_of
from foretrace._learner.nodes import gathered, node_groups, scattered
from foretrace._learner.optimizer import updated
from foretrace._network import AbstractNetwork
from foretrace._recurrence.chunk import Carry
from foretrace._rule import LearningRule
from foretrace._types import Array, Bool, Float, PyTree
from foretrace.heads import HeadState, LeastSquares


class Learned(NamedTuple):
    """Everything that a row changes.

    Args:
        network: network with its parameters.
        opt_state: state of the optimiser.
        carry: states and sensitivities of the streams.
        head: state of the head; None for the decoder.
        errors: moments of the errors.
    """

    network: Any
    opt_state: Any
    carry: Carry
    head: HeadState | None
    errors: Errors


class Seen(NamedTuple):
    """What may be looked at after rows.

    Args:
        loss: weighted loss, the mean over streams.
        outputs: outputs before each row was learned.
        gradient: gradient of the loss; for a second-order step, of half the squared errors, node by
            node.
    """

    loss: Float[Array, ""]
    outputs: Float[Array, "..."]
    gradient: PyTree[Array]


class Row(NamedTuple):
    """One row of every stream.

    Args:
        x: inputs.
        y: targets.
        weight: how much the row counts; 0 without a label.
        reset: whether an episode starts; never if None.
    """

    x: Float[Array, "*B I"]
    y: Array
    weight: Float[Array, "*B"]
    reset: Bool[Array, "*B"] | None


class Passed(NamedTuple):
    """Values of a row between input and output, closed to the derivative.

    Args:
        features: features that were read.
        predictions: numbers or probabilities that they predicted, or the scores of least squares.
        targets: targets of the predictions.
        outputs: outputs of the network.
        after: carry after the row.
    """

    features: Float[Array, "*B F"]
    predictions: Float[Array, "*B O"]
    targets: Float[Array, "*B O"]
    outputs: Float[Array, "*B O"]
    after: Carry


class RowStep:
    """The step of one row.

    Args:
        network: network, or its shapes.
        rule: learning rule, which says which sensitivities are carried.
        optimizer: second-order step, or an Optax optimiser.
        head: head by least squares; the network's decoder if None.
        loss: loss of one step.
        held: tree like the network, True for parameters that are not trained.
        batch_size: number of streams; None for one without an axis.
    """

    def __init__(
        self,
        network: AbstractNetwork,
        *,
        rule: LearningRule,
        optimizer: Any,
        head: LeastSquares | None,
        loss: Loss,
        held: PyTree[bool],
        batch_size: int | None,
    ):
        self.rule, self.optimizer, self.head, self.loss = rule, optimizer, head, loss
        self.measurement = measurement_of(loss)
        self.batch_size, self.output_size = batch_size, network.output_size
        self.nodes = node_groups(network, held)

    def init(self, network: AbstractNetwork) -> tuple[Any, HeadState | None, Errors]:
        """Return the first states of optimiser and head, and moments of no errors."""
        dtype = jax.tree.leaves(network)[0].dtype
        head = (
            None
            if self.head is None
            else self.head.init(network.feature_size, self.output_size, dtype)
        )
        errors = init_errors(self.batch_size or 1, self.output_size, dtype)
        return self.optimizer.init(self._parameters(network)), head, errors

    def read(self, network: AbstractNetwork, head: HeadState | None) -> Callable[[Array], Array]:
        """Return the function from the features of a step to the outputs."""
        if self.head is None or head is None:
            return network.decoder
        scores, sharpness = partial(self.head.scores, head), self.head.sharpness
        return lambda f: self.measurement.outputs(scores(f), sharpness)

    def learn(self, before: Learned, data: Data) -> tuple[Learned, Seen]:
        """Learn the rows of a chunk, one after the other."""
        assert data.ys is not None, "rows are learned with their targets"
        # Targets that do not fit are the loss's own error.
        front = data.xs.ndim - 1
        output = jax.ShapeDtypeStruct((self.output_size,), data.xs.dtype)
        jax.eval_shape(
            self.loss, output, jax.ShapeDtypeStruct(data.ys.shape[front:], data.ys.dtype)
        )
        weights = jnp.ones(data.xs.shape[:-1]) if data.mask is None else data.mask
        # No observation has a negative weight: it becomes NaN, by which the call is refused.
        weights = jnp.where(weights < 0, jnp.nan, weights.astype(data.xs.dtype))
        rows = Row(data.xs, data.ys, weights, data.reset)
        batched = self.batch_size is not None
        if batched:
            rows = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), rows)

        def one(
            state: tuple[Learned, Any], row: Row
        ) -> tuple[tuple[Learned, Any], tuple[Array, Array]]:
            if data.mask is None:
                learned, seen = self.labelled_row(state[0], row)
            else:
                # A branch, for a row without labels costs a fraction of one with labels.
                has_labels = (row.weight != 0).any()
                learned, seen = lax.cond(
                    has_labels, self.labelled_row, self.unlabelled_row, state[0], row
                )
            return (learned, jax.tree.map(jnp.add, state[1], seen.gradient)), (
                seen.loss,
                seen.outputs,
            )

        zero = jax.tree.map(jnp.zeros_like, self._parameters(before.network))
        if rows.x.shape[0] == 1:
            # No loop in the program of a single row, which may be exported as a plain graph.
            start, only = (before, zero), jax.tree.map(lambda leaf: leaf[0], rows)
            (after, gradient), seen = one(start, only)
            losses, outputs = jax.tree.map(lambda leaf: leaf[None], seen)
        else:
            (after, gradient), (losses, outputs) = lax.scan(one, (before, zero), rows)
        return after, Seen(
            losses.sum(), jnp.swapaxes(outputs, 0, 1) if batched else outputs, gradient
        )

    def unlabelled_row(self, before: Learned, row: Row) -> tuple[Learned, Seen]:
        """Move states and sensitivities over one row of every stream."""
        batched, read = self.batch_size is not None, self.read(before.network, before.head)
        pass_row = partial(self._pass, before.network)
        streams = each_stream(pass_row, batched, (1, 0, 0), (0, 1))
        features, after = streams(before.carry, row.x, row.reset)
        none = jax.tree.map(jnp.zeros_like, self._parameters(before.network))
        outputs = each_stream(read, batched)(features)
        return before._replace(carry=after), Seen(jnp.zeros((), outputs.dtype), outputs, none)

    def labelled_row(self, before: Learned, row: Row) -> tuple[Learned, Seen]:
        """Learn one row of every stream."""
        batched = self.batch_size is not None
        differentiate = partial(self._differentiate, before.network, before.head)
        out_axes = (0, Passed._make((0, 0, 0, 0, 1)))
        streams = each_stream(differentiate, batched, (1, 0, 0, 0), out_axes)
        jacobian, passed = streams(before.carry, row.x, row.y, row.reset)
        after, outputs = passed.after, passed.outputs
        if not batched:
            # A single stream is a batch of one from here on; its carry need not know.
            alone = (jacobian, passed._replace(after=Carry(None, None)), row)
            jacobian, passed, row = jax.tree.map(lambda leaf: leaf[None], alone)
        known = row.weight > 0
        found = clipped(
            before.errors, jnp.where(known[:, None], passed.targets - passed.predictions, 0.0)
        )
        errors = noted(before.errors, found, known)
        learned = before._replace(carry=after, errors=errors)
        step = self._second_order if isinstance(self.optimizer, Kalman) else self._first_order
        loss = self._loss(passed.outputs, row)
        learned, gradient = step(learned, jacobian, passed, found, row)
        if self.head is not None and before.head is not None:
            learned = learned._replace(
                head=self.head.learn(before.head, passed.features, found, row.weight)
            )
        return learned, Seen(loss, outputs, gradient)

    def _parameters(self, network: AbstractNetwork) -> Any:
        return gathered(self.nodes, network) if isinstance(self.optimizer, Kalman) else network

    def _pass(
        self,
        network: AbstractNetwork,
        carry: Carry,
        x: Float[Array, "I"],
        reset: Bool[Array, ""] | None,
    ) -> tuple[Float[Array, "F"], Carry]:
        """Return the features of a row of one stream, and the carry after it."""
        data = Data(x[None], reset=None if reset is None else reset[None])
        features, after = run(network, carry, data, rule=self.rule, readout=lambda f: f)
        assert after is not None
        return features[0], after

    def _differentiate(
        self,
        network: AbstractNetwork,
        head: HeadState | None,
        carry: Carry,
        x: Float[Array, "I"],
        y: Array,
        reset: Bool[Array, ""] | None,
    ) -> tuple[PyTree[Array], Passed]:
        """Return the Jacobian of the predictions of one stream, and what its row went through."""
        measurement = self.measurement

        def predict(network: AbstractNetwork) -> tuple[Array, Passed]:
            f, after = self._pass(network, carry, x, reset)
            if self.head is None or head is None:
                outputs = network.decoder(f)
                predictions, targets = (
                    measurement.predictions(outputs, y),
                    measurement.targets(y, outputs),
                )
            else:
                predictions = self.head.scores(head, f)
                outputs = measurement.outputs(predictions, self.head.sharpness)
                targets = measurement.centred(y, predictions)
            return predictions, lax.stop_gradient(Passed(f, predictions, targets, outputs, after))

        # The rule has stopped the other gradients, and the past is attached: autodiff of this row,
        # with a cotangent for each output, is the Jacobian through all earlier rows.
        predictions, pull, passed = jax.vjp(predict, network, has_aux=True)
        (jacobian,) = jax.vmap(pull)(jnp.eye(self.output_size, dtype=predictions.dtype))
        return jacobian, passed

    def _loss(self, outputs: Float[Array, "B O"], row: Row) -> Float[Array, ""]:
        """Return the mean over streams of the weighted loss; without a label it may be anything."""
        losses = jax.vmap(self.loss)(outputs, row.y)
        return jnp.where(row.weight > 0, losses * row.weight, 0.0).mean()

    def _first_order(
        self, before: Learned, jacobian: PyTree[Array], passed: Passed, found: Array, row: Row
    ) -> tuple[Learned, Any]:
        """Give an Optax optimiser the gradient of the loss, the head being a constant."""
        assert self.head is not None
        sharpness = self.head.sharpness

        def loss(scores: Array) -> Array:
            # Not a product: rows that do not count have no derivative either.
            seen = jnp.where((row.weight > 0)[:, None], scores, lax.stop_gradient(scores))
            return self._loss(self.measurement.outputs(seen, sharpness), row)

        value, slope = jax.value_and_grad(loss)(passed.predictions)
        gradient = jax.tree.map(lambda leaf: jnp.tensordot(slope, leaf, 2), jacobian)
        network, opt_state, _ = updated(
            self.optimizer, before.network, before.opt_state, gradient, value=value
        )
        return before._replace(network=network, opt_state=opt_state), gradient

    def _second_order(
        self, before: Learned, jacobian: PyTree[Array], passed: Passed, found: Array, row: Row
    ) -> tuple[Learned, Any]:
        """Give the filter the Jacobian and the errors, each row times the root of its weight."""
        root = jnp.sqrt(row.weight)
        nodes = [
            (jnp.expand_dims(root, (1, 2, 3)) * each).reshape(-1, *each.shape[2:])
            for each in gathered(self.nodes, jacobian, axes=2)
        ]
        found = root[:, None] * found
        spread = jnp.zeros((len(root), len(root)), found.dtype)
        if self.head is not None and before.head is not None:
            spread = self.head.variance(before.head, passed.features) * (root[:, None] * root[None])
        changes, opt_state = self.optimizer.update(
            before.opt_state, nodes, found, before.errors, spread, row.weight > 0
        )
        change = scattered(self.nodes, changes, before.network)
        network, carry = jax.tree.map(jnp.add, before.network, change), before.carry
        if (limit := self.optimizer.state_correction) is not None:
            carry = corrected(
                before.network, change, carry, limit, batched=self.batch_size is not None
            )
        gradient = [-jnp.tensordot(found.reshape(-1), each, 1) for each in nodes]
        return before._replace(network=network, opt_state=opt_state, carry=carry), gradient
