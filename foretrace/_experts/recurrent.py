"""A recurrent network for many streams with late labels: predict now, learn later.

    outputs_j, carry_{j+1} = network(carry_j, xs_j)                   now, present parameters
    parameters             = learn(carry_{j-d}, xs_{j-d}, ys_{j-d})   d steps later, old carry

A step has C rows of each of K streams. Each stream has its carry in a slot, and its carries whose
labels have not come in a ring; all streams share the network. A step costs what K streams cost,
however many slots there are. Streams join, leave and start anew through the values of `slots` and
`is_new`: nothing is compiled again. One spare slot belongs to rows that are missing: its carry
stays as it was in the beginning, and its ring is never read.

Without delay both lines are one call: the outputs of a learning step are computed with the
parameters before it. Everything is computed in the precision that JAX was set to when the object
was made, also inside of a program in float64.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from foretrace._experts.ring import Ring
from foretrace._experts.slots import in_slots, read, write
from foretrace._learner.learner import Learner
from foretrace._learner.state import Info, LearnerState
from foretrace._recurrence.chunk import Carry
from foretrace._types import Array, Bool, Float, Int, PRNGKeyArray

MAX_BYTES = 2**30
"""Maximum memory of all streams: their carries, and their steps that wait for labels."""


class PendingStep(NamedTuple):
    """A step whose labels have not come: the carry before it, and its inputs."""

    carry: Carry
    xs: Float[Array, "C I"]


class RecurrentState(NamedTuple):
    """Everything that learning changes; slots are a first axis of carry, pending and turn.

    Args:
        learner: network, optimiser and carry.
        pending: steps whose labels have not come; None without delay.
        turn: turn of the ring of pending steps.
    """

    learner: LearnerState
    pending: PendingStep | None
    turn: Int[Array, "*P"]


class Measures(NamedTuple):
    """Report of a step.

    Args:
        loss: mean loss over the streams that have a label.
        gradient_norm: norm of the gradient before clipping.
        update_norm: norm of the change of the parameters.
        accepted: 1 if the step was accepted, 0 if it was refused because it was not finite.
    """

    loss: float
    gradient_norm: float
    update_norm: float
    accepted: float


class RecurrentStep(NamedTuple):
    """Result of a learning step.

    Args:
        outputs: outputs of the new rows.
        measures: the fields of `Measures` as one array.
    """

    outputs: Float[Array, "KC M"]
    measures: Float[Array, "4"]


class Recurrent:
    """Learn C rows of each of K streams in a step; labels come `delay` rows later.

    The gradient is the mean over the streams that have a label in the step: a row that is missing,
    or has no label, does not dilute it. A step whose loss or gradient is not finite is refused for
    all of its rows.

    Args:
        learner: learner of K streams (its batch_size), or of one unbatched stream. It updates its
            parameters at every step that has a label.
        slots: maximum number of streams; None for one stream that never starts anew, which needs no
            slots.
        chunk: number of rows of a stream in a step.
        delay: number of rows of a stream after which its label comes.

    Raises:
        ValueError: a number is out of range, or the streams would take more than `MAX_BYTES`.
    """

    def __init__(
        self, learner: Learner, *, slots: int | None = None, chunk: int = 1, delay: int = 0
    ):
        if chunk < 1 or delay < 0:
            raise ValueError(f"chunk={chunk} must be at least 1 and delay={delay} at least 0")
        self.learner = learner
        self.slots = slots
        self.chunk = chunk
        self.ring = Ring(-(-delay // chunk))
        self.x64: bool = jax.config.read("jax_enable_x64")
        together = learner.batch_size or 1
        if slots is not None and slots < together:
            raise ValueError(
                f"members={slots} must be at least together={together}: the rows of a step belong "
                "to distinct members"
            )
        self._check_memory(delay)

    def init(self, key: PRNGKeyArray | None = None) -> RecurrentState:
        """Return the state before the first row."""
        with jax.enable_x64(self.x64):
            carry, ring = self._one_slot()
            turn = jnp.zeros((), jnp.int32)
            if self.slots is not None:
                count = self.slots + 1
                carry, turn = in_slots((carry, turn), count)
                ring = self.ring.empty(self._pending(), count)
            state = self.learner.init(key)
            if self.slots is not None:
                state = state._replace(carry=carry)
            return RecurrentState(state, ring if self.ring.delay else None, turn)

    def step(
        self,
        state: RecurrentState,
        xs: Float[Array, "KC I"],
        ys: Array,
        mask: Bool[Array, "KC"],
        slots: Int[Array, "K"],
        is_new: Bool[Array, "K"],
    ) -> tuple[RecurrentState, RecurrentStep]:
        """Return the outputs of new rows, and learn from the rows whose labels have come.

        Args:
            state: state from `init` or the previous call.
            xs: inputs of the new rows, a stream's rows in order.
            ys: labels of the rows that came `ring.delay` steps of their stream ago.
            mask: which labels count. If none does, parameters and optimiser stay as they are.
            slots: slot of each stream, all distinct; the number of slots for missing rows.
            is_new: which streams start anew with this step: carry and pending steps are as after
                `init`.
        """
        with jax.enable_x64(self.x64):
            xs, ys = self._as_float(xs), self._as_float(ys)
            here = self._here(slots)
            before = self._carries(state, slots, is_new)
            ready = state.learner._replace(carry=self._to_learner(before))
            weights = self._weights(mask, here)
            if state.pending is None:
                learned, info = self.learner.step(
                    ready, self._by_stream(xs), self._by_stream(ys), mask=weights
                )
                after = self._kept(state, slots, here, before, self._from_learner(learned.carry))
                state = state._replace(learner=learned._replace(carry=after))
                return state, RecurrentStep(self._rows(info.outputs), _stacked(info))
            outputs, passed = self.learner.predict(ready, self._by_stream(xs))
            turn = state.turn
            if self.slots is not None:
                turn = jnp.where(is_new, 0, read(state.turn, slots))
            at = () if self.slots is None else (slots,)
            new = PendingStep(before, xs.reshape(*turn.shape, -1, xs.shape[-1]))
            pending = self.ring.write(state.pending, at, turn, new)
            old = self.ring.oldest(pending, at, turn)
            if self.slots is not None:
                # Until the ring of a stream is full, it may hold steps of the one that had the slot
                # before.
                old = _where_each(turn >= self.ring.delay, old, jax.tree.map(jnp.zeros_like, old))
            late = ready._replace(carry=self._to_learner(old.carry))
            learned, info = self.learner.step(
                late, self._of_ring(old.xs), self._by_stream(ys), mask=weights
            )
            after = self._kept(state, slots, here, before, self._from_learner(passed.carry))
            turn = self.ring.next_turn(turn)
            if self.slots is not None:
                turn = state.turn.at[slots].set(jnp.where(here, turn, 0))
            state = RecurrentState(learned._replace(carry=after), pending, turn)
            return state, RecurrentStep(self._rows(outputs), _stacked(info))

    def advance(
        self,
        state: RecurrentState,
        xs: Float[Array, "KC I"],
        slots: Int[Array, "K"],
        is_new: Bool[Array, "K"],
    ) -> tuple[RecurrentState, Float[Array, "KC M"]]:
        """Return the state behind the next rows and their outputs, without learning."""
        with jax.enable_x64(self.x64):
            before = self._carries(state, slots, is_new)
            ready = state.learner._replace(carry=self._to_learner(before))
            outputs, after = self.learner.predict(
                ready, self._by_stream(self._as_float(xs)), sensitivity=False
            )
            carry = self._kept(
                state, slots, self._here(slots), before, self._from_learner(after.carry)
            )
            learner = state.learner._replace(carry=carry, skipped=after.skipped)
            return state._replace(learner=learner), self._rows(outputs)

    def carry_of(self, state: RecurrentState, slot: int) -> Carry:
        """Return the carry of a stream."""
        carry: Any = state.learner.carry
        return carry if self.slots is None else jax.tree.map(lambda leaf: leaf[slot], carry)

    def _here(self, slots: Array) -> Bool[Array, "K"]:
        """Return which streams are not missing."""
        return jnp.ones(1, bool) if self.slots is None else slots < self.slots

    def _weights(self, mask: Array, here: Array) -> Array:
        """Return weights that turn a mean over K streams into the mean over labelled ones."""
        counts = mask.reshape(len(here), -1) & here[:, None]
        streams = counts.any(axis=1).sum()
        weights = jnp.where(counts, len(here) / jnp.maximum(streams, 1), 0).astype(
            jnp.result_type(float)
        )
        return weights[0] if self.learner.batch_size is None else weights

    def _carries(self, state: RecurrentState, slots: Array, is_new: Array) -> Carry:
        """Return the carries of K slots; initial carries where a stream starts anew."""
        if self.slots is None:
            assert state.learner.carry is not None
            return state.learner.carry
        # A rule that samples needs another key for each start; the learner's key moves on with
        # every step.
        key = jax.random.fold_in(state.learner.key, 2) if self.learner.rule.samples else None
        first = self.learner.init_carry(state.learner.network, len(slots), key)
        first = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), first)
        return _where_each(is_new, first, read(state.learner.carry, slots))

    def _kept(
        self, state: RecurrentState, slots: Array, here: Array, before: Carry, after: Carry
    ) -> Carry:
        """Return the carries of all slots behind a step."""
        if self.slots is None:
            return after
        new = _where_each(here, after, before)
        return write(state.learner.carry, slots, new)

    def _to_learner(self, carry: Carry) -> Carry:
        """Return carries as the learner takes them: layers first, then streams if several."""
        if self.slots is None:
            return carry
        if self.learner.batch_size is None:
            return jax.tree.map(lambda leaf: leaf[0], carry)
        return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), carry)

    def _from_learner(self, carry: Carry | None) -> Any:
        if self.slots is None:
            return carry
        if self.learner.batch_size is None:
            return jax.tree.map(lambda leaf: leaf[None], carry)
        return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), carry)

    def _by_stream(self, rows: Array) -> Array:
        """Return rows as the learner takes them; unbatched for one stream."""
        size = self.learner.batch_size
        return rows if size is None else rows.reshape(size, -1, *rows.shape[1:])

    def _of_ring(self, xs: Array) -> Array:
        return xs[0] if self.slots is not None and self.learner.batch_size is None else xs

    def _rows(self, outputs: Array) -> Float[Array, "KC M"]:
        return outputs.reshape(-1, outputs.shape[-1])

    def _as_float(self, values: Array) -> Array:
        return (
            values.astype(jnp.result_type(float))
            if jnp.issubdtype(values.dtype, jnp.floating)
            else values
        )

    def _pending(self) -> PendingStep:
        """Return a pending step of zeros."""
        carry = jax.tree.map(jnp.zeros_like, self.learner.init_carry(self.learner.network, None))
        return PendingStep(
            carry, jnp.zeros((self.chunk, self.learner.network.input_size), jnp.result_type(float))
        )

    def _one_slot(self) -> tuple[Carry, PendingStep]:
        """Return the carry of a stream that has had no row, and its empty ring."""
        return self.learner.init_carry(self.learner.network, None), self.ring.empty(self._pending())

    def _check_memory(self, delay: int) -> None:
        each, pending = (
            num_bytes(jax.eval_shape(self._one_slot)),
            num_bytes(jax.eval_shape(self._pending)),
        )
        size = each * (1 if self.slots is None else self.slots + 1)
        if size > MAX_BYTES:
            carry = each - pending * self.ring.places
            rows = max((MAX_BYTES - carry) // pending - 1, 0) * self.chunk
            members = max(MAX_BYTES // each - 1, 0)
            given = {"members": self.slots, "delay": delay or None}
            named = ", ".join(
                f"{name}={value}" for name, value in given.items() if value is not None
            )
            room = (
                f"the delay can be {rows} rows"
                if self.slots is None
                else f"there is room for {members} members"
            )
            raise ValueError(
                f"{named}: their memory would take {size / 2**20:.0f} MiB, but at most "
                f"{MAX_BYTES / 2**20:.0f} MiB are allowed; with this network {room}; use fewer "
                "members, a smaller network, a larger chunk or a shorter delay"
            )


def num_bytes(tree: Any) -> int:
    """Return the memory of the arrays of a tree, or of their shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def read_measures(measures: Any) -> Measures:
    """Return measures as numbers; this waits for the device."""
    return Measures(*np.asarray(measures, np.float64).tolist())


def _stacked(info: Info) -> Float[Array, "4"]:
    return jnp.stack(
        [info.loss, info.gradient_norm, info.update_norm, info.accepted.astype(info.loss.dtype)]
    )


def _where_each(condition: Array, yes: Any, no: Any) -> Any:
    """Choose for each of K streams; both trees have the streams in front."""
    return jax.tree.map(partial(_choose, condition), yes, no)


def _choose(condition: Array, yes: Array, no: Array) -> Array:
    return jnp.where(condition.reshape(-1, *[1] * (yes.ndim - 1)), yes, no)
