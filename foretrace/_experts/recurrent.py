"""A recurrent network for many streams with late labels: predict now, learn later.

    outputs_j, carry_{j+1} = network(carry_j, xs_j)                   now, present parameters
    parameters             = learn(carry_{j-d}, xs_{j-d}, ys_{j-d})   d steps later, old carry

A step has C rows of a stream. Each stream has its carry in a slot, and its carries whose labels
have not come in a ring; all streams share the network. A step costs as much however many slots
there are. Streams join, leave and start anew through the values of `slot` and `is_new`: nothing is
compiled again. One spare slot belongs to rows that are missing: its carry stays as it was in the
beginning, and its ring is never read.

Without delay both lines are one call: the outputs of a learning step are computed with the
parameters before it. Everything is computed in the precision that JAX was set to when the object
was made, also inside of a program in float64.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from foretrace._experts.ring import Ring
from foretrace._experts.slots import in_slots, read, write
from foretrace._learner.learner import Learner
from foretrace._learner.state import Info, LearnerState
from foretrace._recurrence.chunk import Carry
from foretrace._types import Array, Bool, Float, Int, PRNGKeyArray


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


class RecurrentStep(NamedTuple):
    """Result of a learning step.

    Args:
        outputs: outputs of the new rows.
        measures: mean loss over the rows that have a label, norm of the gradient before clipping,
            norm of the change of the parameters, and 1 if the step was accepted, 0 if it was
            refused because it was not finite.
    """

    outputs: Float[Array, "C M"]
    measures: Float[Array, "4"]


class Recurrent:
    """Learn C rows of a stream in a step; labels come `delay` rows later.

    A row that is missing, or has no label, counts nothing. A step whose loss or gradient is not
    finite is refused.

    Args:
        learner: learner of one unbatched stream. It updates its parameters at every step that has a
            label.
        slots: maximum number of streams; None for one stream that never starts anew, which needs no
            slots.
        chunk: number of rows in a step.
        delay: number of rows of a stream after which its label comes.

    Raises:
        ValueError: a number is out of range.
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

    def init(self, key: PRNGKeyArray | None = None) -> RecurrentState:
        """Return the state before the first row."""
        with jax.enable_x64(self.x64):
            network = self.learner.network
            carry, turn = self.learner.init_carry(network, None), jnp.zeros((), jnp.int32)
            xs = jnp.zeros((self.chunk, network.input_size), jnp.result_type(float))
            step = PendingStep(jax.tree.map(jnp.zeros_like, carry), xs)
            ring = self.ring.empty(step)
            state = self.learner.init(key)
            if self.slots is not None:
                carry, turn = in_slots((carry, turn), self.slots + 1)
                ring = self.ring.empty(step, self.slots + 1)
                state = state._replace(carry=carry)
            return RecurrentState(state, ring if self.ring.delay else None, turn)

    def step(
        self,
        state: RecurrentState,
        xs: Float[Array, "C I"],
        ys: Array,
        known: Bool[Array, "C"],
        slot: Int[Array, ""],
        is_new: Bool[Array, ""],
    ) -> tuple[RecurrentState, RecurrentStep]:
        """Return the outputs of new rows, and learn from the rows whose labels have come.

        Args:
            state: state from `init` or the previous call.
            xs: inputs of the new rows.
            ys: labels of the rows that came `ring.delay` steps of their stream ago.
            known: which labels count. If none does, parameters and optimiser stay as they are.
            slot: slot of the stream; the number of slots for missing rows.
            is_new: whether the stream starts anew with this step: carry and pending steps are as
                after `init`.
        """
        with jax.enable_x64(self.x64):
            xs, ys = self._as_float(xs), self._as_float(ys)
            here = self._is_here(slot)
            before = self._carry(state, slot, is_new)
            ready = state.learner._replace(carry=before)
            weights = (known & here).astype(jnp.result_type(float))
            if state.pending is None:
                learned, info = self.learner.step(ready, xs, ys, mask=weights)
                after = self._kept(state, slot, here, before, learned.carry)
                state = state._replace(learner=learned._replace(carry=after))
                return state, RecurrentStep(info.outputs, _stacked(info))
            outputs, passed = self.learner.predict(ready, xs)
            at: tuple[Any, ...] = ()
            turn = state.turn
            if self.slots is not None:
                at, turn = (slot,), jnp.where(is_new, 0, read(state.turn, slot))
            pending = self.ring.write(state.pending, at, turn, PendingStep(before, xs))
            old = self.ring.oldest(pending, at, turn)
            if self.slots is not None:
                # Until the ring of a stream is full, it may hold steps of the one that had the slot
                # before.
                is_own = turn >= self.ring.delay
                old = optax.tree.where(is_own, old, jax.tree.map(jnp.zeros_like, old))
            late = ready._replace(carry=old.carry)
            learned, info = self.learner.step(late, old.xs, ys, mask=weights)
            after = self._kept(state, slot, here, before, passed.carry)
            turn = self.ring.next_turn(turn)
            if self.slots is not None:
                turn = state.turn.at[slot].set(jnp.where(here, turn, 0))
            state = RecurrentState(learned._replace(carry=after), pending, turn)
            return state, RecurrentStep(outputs, _stacked(info))

    def advance(
        self,
        state: RecurrentState,
        xs: Float[Array, "C I"],
        slot: Int[Array, ""],
        is_new: Bool[Array, ""],
    ) -> tuple[RecurrentState, Float[Array, "C M"]]:
        """Return the state behind the next rows and their outputs, without learning."""
        with jax.enable_x64(self.x64):
            before = self._carry(state, slot, is_new)
            ready = state.learner._replace(carry=before)
            outputs, after = self.learner.predict(ready, self._as_float(xs), sensitivity=False)
            carry = self._kept(state, slot, self._is_here(slot), before, after.carry)
            learner = state.learner._replace(carry=carry, skipped=after.skipped)
            return state._replace(learner=learner), outputs

    def of_streams(self, state: Any) -> Any:
        """Return the parts of a state that there are for each stream."""
        return state.learner.carry, state.pending, state.turn

    def carry_of(self, state: RecurrentState, slot: int) -> Carry:
        """Return the carry of a stream."""
        carry: Any = state.learner.carry
        return carry if self.slots is None else jax.tree.map(lambda leaf: leaf[slot], carry)

    def _is_here(self, slot: Array) -> Bool[Array, ""]:
        """Return whether the rows of a step are not missing."""
        return jnp.ones((), bool) if self.slots is None else slot < self.slots

    def _carry(self, state: RecurrentState, slot: Array, is_new: Array) -> Any:
        """Return the carry of a slot; an initial one where the stream starts anew."""
        if self.slots is None:
            return state.learner.carry
        # A rule that samples needs another key for each start; the learner's key moves on with
        # every step.
        key = jax.random.fold_in(state.learner.key, 2) if self.learner.rule.samples else None
        first = self.learner.init_carry(state.learner.network, None, key)
        return optax.tree.where(is_new, first, read(state.learner.carry, slot))

    def _kept(
        self, state: RecurrentState, slot: Array, here: Array, before: Any, after: Any
    ) -> Any:
        """Return the carries of all slots behind a step."""
        if self.slots is None:
            return after
        return write(state.learner.carry, slot, optax.tree.where(here, after, before))

    def _as_float(self, values: Array) -> Array:
        return (
            values.astype(jnp.result_type(float))
            if jnp.issubdtype(values.dtype, jnp.floating)
            else values
        )


def num_bytes(tree: Any) -> int:
    """Return the memory of the arrays of a tree, or of their shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _stacked(info: Info) -> Float[Array, "4"]:
    return jnp.stack(
        [info.loss, info.gradient_norm, info.update_norm, info.accepted.astype(info.loss.dtype)]
    )
