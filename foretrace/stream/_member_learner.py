"""Many streams in one learner: each member has its own memory in a slot, all share the network.

    carries[slots], pending[slots]  =  one batched step of  (carries[slots], pending[slots], xs)       K slots of P
    parameters                      =  learn from the mean gradient of the rows whose labels have come

A step costs what K streams cost, however many slots there are; memory grows with the slots. Members join, leave and
start anew through the values of `slots` and `is_new`: nothing is compiled again. One spare slot belongs to rows that
are missing: its carry stays as it was in the beginning, and its ring is never read.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from foretrace._experts.shape import Shape
from foretrace._learner.learner import Learner
from foretrace._learner.packing import Packed, Packing
from foretrace._recurrence.chunk import Carry
from foretrace._types import Array, Bool, Float, PRNGKeyArray
from foretrace.stream._calibration import calibrated, new_calibration
from foretrace.stream._learner import (
    AnyState,
    StreamState,
    StreamStep,
    calibration_after,
    copy_state,
    stack_measures,
)
from foretrace.stream._model import build_learner, made_once
from foretrace.stream._model_config import ModelConfig
from foretrace.stream._ring import PendingSteps, Ring, num_bytes, pending_step

MAX_MEMBER_BYTES = 2**30
"""Maximum memory of all members: their carries, and their steps that wait for labels."""


class MemberLearner:
    """Learn rows of many streams, K distinct ones in each step; a label comes `delay` rows of its member later.

    The gradient is the mean over the rows whose labels have come: a row that is missing, or has no label, does not
    dilute it. A step whose loss or gradient is not finite is refused for all of its rows. Methods take a state as it
    is, or packed by `packing`, which takes less time a call, and return it likewise.

    Args:
        learner: learner of K streams (its batch_size), or of one unbatched stream.
        members: maximum number of members.
        delay: number of rows of a member after which its label comes.
        num_calibrated: number of outputs, the first ones, that are logits to be calibrated, for all members alike.

    Raises:
        ValueError: there are fewer members than rows in a step, or they would take more than `MAX_MEMBER_BYTES`.
    """

    def __init__(self, learner: Learner, *, members: int, delay: int = 0, num_calibrated: int = 0):
        self.learner = learner
        self.members = members
        self.num_calibrated = num_calibrated
        self.ring = Ring(delay)
        self.together = learner.batch_size or 1
        if members < self.together:
            raise ValueError(
                f"members={members} must be at least together={self.together}: the rows of a step belong to distinct "
                "members"
            )
        self._check_memory()
        self.packing = Packing(jax.eval_shape(self.init))
        self._step = jax.jit(self.packing.keeping_packed(self._traced_step), donate_argnums=0)
        self._predict = jax.jit(self.packing.taking_packed(self._traced_predict))
        self._advance = jax.jit(self.packing.keeping_packed(self._traced_advance), donate_argnums=0)

    def init(self, key: PRNGKeyArray | None = None) -> StreamState:
        """Return the state before the first row."""
        state = self.learner.init(key)
        carry, ring = self._one_slot()
        slots = self.members + 1
        carries = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], slots, axis=0), carry)
        rings = jax.tree.map(lambda leaf: jnp.zeros((slots, *leaf.shape), leaf.dtype), ring)
        state = state._replace(carry=carries)
        # Steps donate the memory of their argument: the learner's own network must not be part of it.
        pending, turn = rings if self.ring.delay else None, jnp.zeros(slots, jnp.int32)
        calibration = new_calibration(self.num_calibrated) if self.num_calibrated else None
        return copy_state(StreamState(state, pending, turn, calibration))

    def step(
        self, state: AnyState, slots: Any, is_new: Any, xs: Any, ys: Any, mask: Any
    ) -> tuple[AnyState, StreamStep]:
        """Predict a row of each of K members, and learn from their rows whose labels have come; `state` is donated.

        Args:
            state: state from `init` or the previous call.
            slots: slot of the member that each row belongs to, (K,), all distinct; `members` for a missing row.
            is_new: which members start anew with this row, (K,): carry and pending steps are as after `init`.
            xs: inputs of the new rows, (K, I).
            ys: labels of the rows that these members had `delay` rows ago.
            mask: which labels count. If none does, parameters and optimiser stay as they are.
        """
        return self._step(state, slots, is_new, xs, ys, mask)

    def predict(self, state: StreamState | Packed, slots: Any, is_new: Any, xs: Any) -> Float[Array, "K O"]:
        """Return the outputs for a row of each of K members if it came next; nothing changes."""
        return self._predict(state, slots, is_new, xs)

    def advance(self, state: AnyState, slots: Any, is_new: Any, xs: Any) -> tuple[AnyState, Float[Array, "K O"]]:
        """Return the state behind the next rows and the outputs for them, without learning; `state` is donated."""
        return self._advance(state, slots, is_new, xs)

    def _traced_predict(self, state: StreamState, slots: Array, is_new: Array, xs: Array) -> Array:
        return self._forward(state, slots, is_new, xs)[0]

    def _traced_advance(self, state: StreamState, slots: Array, is_new: Array, xs: Array) -> tuple[StreamState, Array]:
        outputs, before, after = self._forward(state, slots, is_new, xs)
        carry = self._put(state.learner.carry, slots, _where_each(slots < self.members, after, before))
        return state._replace(learner=state.learner._replace(carry=carry)), outputs

    def _forward(self, state: StreamState, slots: Array, is_new: Array, xs: Array) -> tuple[Array, Carry, Carry]:
        before = self._carries(state, slots, is_new)
        ready = state.learner._replace(carry=self._to_batch(before))
        outputs, after = self.learner.predict(ready, self._rows(xs), sensitivity=False)
        return self._calibrated(state, self._unrows(outputs)), before, self._from_batch(after.carry)

    def _calibrated(self, state: StreamState, outputs: Array) -> Array:
        return outputs if state.calibration is None else calibrated(state.calibration, outputs)

    def _traced_step(
        self, state: StreamState, slots: Array, is_new: Array, xs: Array, ys: Array, mask: Array
    ) -> tuple[StreamState, StreamStep]:
        here, before = slots < self.members, self._carries(state, slots, is_new)
        weights = _mean_of(jnp.asarray(mask) & here)
        ready = state.learner._replace(carry=self._to_batch(before))
        if state.pending is None:
            learned, info = self.learner.step(ready, self._rows(xs), self._rows(ys), mask=self._rows(weights))
            ahead, outputs = self._from_batch(learned.carry), self._calibrated(state, self._unrows(info.outputs))
            calibration = calibration_after(state, self._unrows(info.outputs), ys, jnp.asarray(mask) & here)
            carry = self._put(state.learner.carry, slots, _where_each(here, ahead, before))
            after = learned._replace(carry=carry)
            after_it = state._replace(learner=after, calibration=calibration)
            return after_it, StreamStep(outputs, outputs, stack_measures(info))
        newest, passed = self.learner.predict(ready, self._rows(xs))
        newest = self._calibrated(state, self._unrows(newest))
        turn = jnp.where(is_new, 0, state.turn[slots])
        new = PendingSteps(before, jnp.asarray(xs, state.pending.xs.dtype)[:, None], newest[:, None])
        pending = self.ring.write(state.pending, (slots, turn % self.ring.places), new)
        oldest = self.ring.read(pending, (slots, (turn + 1) % self.ring.places))
        # Until the ring of a member has been filled once, it may hold steps of the member that had the slot before.
        old = _where_each(turn >= self.ring.delay, oldest, jax.tree.map(jnp.zeros_like, oldest))
        late = ready._replace(carry=self._to_batch(old.carry))
        learned, info = self.learner.step(late, self._rows(old.xs[:, 0]), self._rows(ys), mask=self._rows(weights))
        ahead = self._from_batch(passed.carry)
        carry = self._put(state.learner.carry, slots, _where_each(here, ahead, before))
        turns = state.turn.at[slots].set(jnp.where(here, self.ring.next_turn(turn, laps=2), 0).astype(jnp.int32))
        step = StreamStep(old.outputs[:, 0], newest, stack_measures(info))
        calibration = calibration_after(state, self._unrows(info.outputs), ys, jnp.asarray(mask) & here)
        return StreamState(learned._replace(carry=carry), pending, turns, calibration), step

    def _carries(self, state: StreamState, slots: Array, is_new: Array) -> Carry:
        """Return the carries of K slots, (K, D, ...); initial carries where a member starts anew."""
        carry = _read(state.learner.carry, slots)
        # A rule that samples needs another key for each start; the learner's key moves on with every step.
        key = jax.random.fold_in(state.learner.key, 2) if self.learner.rule.samples else None
        first = self.learner.init_carry(state.learner.network, self.together, key)
        return _where_each(jnp.asarray(is_new), jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), first), carry)

    def _put(self, carries: Carry | None, slots: Array, new: Carry) -> Carry:
        return jax.tree.map(lambda leaf, one: leaf.at[slots].set(one), carries, new)

    def _to_batch(self, carry: Carry) -> Carry:
        """Return carries as the learner takes them: layers in front, then streams; unbatched for one stream."""
        if self.learner.batch_size is None:
            return jax.tree.map(lambda leaf: leaf[0], carry)
        return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), carry)

    def _from_batch(self, carry: Carry | None) -> Carry:
        if self.learner.batch_size is None:
            return jax.tree.map(lambda leaf: leaf[None], carry)
        return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), carry)

    def _rows(self, rows: Any) -> Array:
        """Return one row per member as chunks of one step; unbatched for one stream."""
        return jnp.asarray(rows) if self.learner.batch_size is None else jnp.asarray(rows)[:, None]

    def _unrows(self, outputs: Array) -> Float[Array, "K O"]:
        return outputs if self.learner.batch_size is None else outputs[:, 0]

    def _one_slot(self) -> tuple[Carry, PendingSteps]:
        """Return the carry of a member that has had no row, and its empty ring."""
        network = self.learner.network
        carry = self.learner.init_carry(network, None)
        return carry, self.ring.empty(pending_step(carry, 1, network.input_size, network.output_size))

    def _check_memory(self) -> None:
        size = num_bytes(jax.eval_shape(self._one_slot))
        room = MAX_MEMBER_BYTES // size - 1
        if self.members > room:
            delay = f" and delay={self.ring.delay}" if self.ring.delay else ""
            raise ValueError(
                f"members={self.members}{delay}: their memory would take {size * (self.members + 1) / 2**20:.0f} MiB, "
                f"but at most {MAX_MEMBER_BYTES / 2**20:.0f} MiB are allowed; with this network there is room for "
                f"{max(room, 0)} members; use fewer members, a smaller network or a shorter delay"
            )


@made_once
def member_learner(config: ModelConfig, shape: Shape) -> MemberLearner:
    """Return the learner of a model with members; equal models share one, and with it their compiled programs."""
    assert shape.members is not None
    learner = build_learner(config, shape)
    return MemberLearner(
        learner,
        members=shape.members,
        delay=shape.delay,
        num_calibrated=shape.logits,
    )


def _read(carries: Any, slots: Array) -> Any:
    """Return the carries of some slots, read exactly once."""

    def there() -> Any:
        return jax.tree.map(lambda leaf: leaf[slots], carries)

    # The compiler would fuse a plain read into each of its uses and repeat it there, also after the next carries are
    # written, and would copy all slots for that. A branch is not fused; this one is always taken.
    return lax.cond(slots[0] >= 0, there, lambda: jax.tree.map(jnp.zeros_like, jax.eval_shape(there)))


def _mean_of(counts: Bool[Array, "K"]) -> Float[Array, "K"]:
    """Return weights that turn a learner's mean over K streams into the mean over the streams that count."""
    weight = counts.size / jnp.maximum(counts.sum(), 1)
    return jnp.where(counts, weight, 0).astype(jnp.result_type(float))


def _where_each(condition: Array, yes: Any, no: Any) -> Any:
    """Choose for each of K members; both trees have the members in front."""
    return jax.tree.map(partial(_choose, condition), yes, no)


def _choose(condition: Array, yes: Array, no: Array) -> Array:
    return jnp.where(condition.reshape(-1, *[1] * (yes.ndim - 1)), yes, no)
