"""Many streams in one learner: each has its own memory in a place of its own, all share the network.

    carries[slots], waiting[slots]  =  one batched step of  (carries[slots], waiting[slots], xs)       K places of P
    parameters                      =  learn from the mean gradient of the rows whose labels have come

A step costs what K streams cost, however many places there are; memory grows with the places. Members join, leave and
start anew by what `slots` and `fresh` hold: nothing is compiled again. One place more than there are members is that
of rows which are missing: its carry stays as it was in the beginning, and what its ring holds is never read.
"""

from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from foretrace._learner.learner import Learner
from foretrace._recurrence.chunk import Carry
from foretrace._types import Array, Bool, Float, PRNGKeyArray
from foretrace.stream._learner import Outcome, StreamState, Waiting, learn, measures, own
from foretrace.stream._model import Model, build_learner

MEMBER_BYTES = 2**30
"""Most memory that members may take: their carries, and their steps that wait for labels."""


class MemberLearner:
    """Learn rows of many streams, K distinct ones in each step, each row `delay` rows of its stream after it came.

    The gradient is the mean over the rows whose labels have come: one that is missing, or has no label, does not
    dilute it. A step whose loss or gradient is not finite is refused for all of its rows.

    Args:
        learner: of K streams (its batch_size), or of one without an axis of streams.
        members: places.
        delay: rows of a member after which its label comes.

    Raises:
        ValueError: fewer members than rows in a step, or more than memory should hold.
    """

    def __init__(self, learner: Learner, *, members: int, delay: int = 0):
        self.learner, self.members, self.waits = learner, members, delay
        self.places = delay + 1 if delay else 0  # see StreamLearner
        self.together = learner.batch_size or 1
        if members < self.together:
            raise ValueError(
                f"members={members} must be at least together={self.together}: the rows of a step belong to distinct "
                "members"
            )
        self._check_memory()
        self._step = jax.jit(self._traced_step, donate_argnums=0)
        self._look = jax.jit(self._traced_look)
        self._pass = jax.jit(self._traced_pass, donate_argnums=0)

    def init(self, key: PRNGKeyArray | None = None) -> StreamState:
        """Return the state before the first row."""
        state = self.learner.init(key)
        carry, waiting = self._one_place()
        places = self.members + 1
        carries = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], places, axis=0), carry)
        rings = jax.tree.map(lambda leaf: jnp.zeros((places, *leaf.shape), leaf.dtype), waiting)
        state = state._replace(carry=carries)
        # Steps take the memory of their argument away from whoever has it: not the learner's own network.
        return own(StreamState(state, rings if self.waits else None, jnp.zeros(places, jnp.int32)))

    def step(
        self, state: StreamState, slots: Any, fresh: Any, xs: Any, ys: Any, mask: Any
    ) -> tuple[StreamState, Outcome]:
        """Predict a row of each of K members, and learn from their rows whose labels have come; `state` is used up.

        Args:
            state: from `init` or the previous call.
            slots: place of the member that each row belongs to, (K,), all distinct; `members` for a row that is
                missing.
            fresh: members that start anew with this row, (K,): carry and waiting steps are as after `init`.
            xs: inputs of the new rows, (K, I).
            ys: labels of the rows that these members had `delay` rows ago.
            mask: which of these count. If none does, parameters and optimiser stay as they are.
        """
        return self._step(state, slots, fresh, xs, ys, mask)

    def predict(self, state: StreamState, slots: Any, fresh: Any, xs: Any) -> Float[Array, "K O"]:
        """Return the outputs for what might come next of K members; nothing changes."""
        return self._look(state, slots, fresh, xs)

    def run(self, state: StreamState, slots: Any, fresh: Any, xs: Any) -> tuple[Float[Array, "K O"], StreamState]:
        """Return the outputs for the next rows and the state behind them, without learning; `state` is used up."""
        return self._pass(state, slots, fresh, xs)

    def _traced_look(self, state: StreamState, slots: Array, fresh: Array, xs: Array) -> Array:
        return self._passed(state, slots, fresh, xs)[0]

    def _traced_pass(self, state: StreamState, slots: Array, fresh: Array, xs: Array) -> tuple[Array, StreamState]:
        outputs, before, after = self._passed(state, slots, fresh, xs)
        carry = self._put(state.learner.carry, slots, _each(slots < self.members, after, before))
        return outputs, state._replace(learner=state.learner._replace(carry=carry))

    def _passed(self, state: StreamState, slots: Array, fresh: Array, xs: Array) -> tuple[Array, Carry, Carry]:
        before = self._carries(state, slots, fresh)
        ready = state.learner._replace(carry=self._to_batch(before))
        outputs, after = self.learner.predict(ready, self._rows(xs), sensitivity=False)
        return self._unrows(outputs), before, self._from_batch(after.carry)

    def _traced_step(
        self, state: StreamState, slots: Array, fresh: Array, xs: Array, ys: Array, mask: Array
    ) -> tuple[StreamState, Outcome]:
        here, before = slots < self.members, self._carries(state, slots, fresh)
        weights = _mean_of(jnp.asarray(mask) & here)
        ready = state.learner._replace(carry=self._to_batch(before))
        if state.waiting is None:
            learned, info = learn(self.learner, ready, self._rows(xs), self._rows(ys), self._rows(weights))
            ahead, outputs = self._from_batch(learned.carry), self._unrows(info.outputs)
            carry = self._put(state.learner.carry, slots, _each(here, ahead, before))
            after = learned._replace(carry=carry)
            return state._replace(learner=after), Outcome(outputs, outputs, measures(info))
        newest, passed = self.learner.predict(ready, self._rows(xs))
        turn = jnp.where(fresh, 0, state.turn[slots])
        new = Waiting(before, jnp.asarray(xs, state.waiting.xs.dtype)[:, None], self._unrows(newest)[:, None])
        waiting = jax.tree.map(lambda ring, leaf: ring.at[slots, turn % self.places].set(leaf), state.waiting, new)
        kept = jax.tree.map(lambda ring: ring[slots, (turn + 1) % self.places], waiting)
        # Until a ring has been filled once, its places may hold what a member before it left there.
        old = _each(turn >= self.waits, kept, jax.tree.map(jnp.zeros_like, kept))
        late = ready._replace(carry=self._to_batch(old.carry))
        learned, info = learn(self.learner, late, self._rows(old.xs[:, 0]), self._rows(ys), self._rows(weights))
        ahead = self._from_batch(passed.carry)
        carry = self._put(state.learner.carry, slots, _each(here & _finite(ahead.h), ahead, before))
        onward = jnp.where(turn + 1 == 2 * self.places, self.places, turn + 1)
        turns = state.turn.at[slots].set(jnp.where(here, onward, 0).astype(jnp.int32))
        outcome = Outcome(old.outputs[:, 0], self._unrows(newest), measures(info))
        return StreamState(learned._replace(carry=carry), waiting, turns), outcome

    def _carries(self, state: StreamState, slots: Array, fresh: Array) -> Carry:
        """Return the carries of K places, (K, D, ...); those of a network as it is now where a member starts anew."""
        carry = _read(state.learner.carry, slots)
        first = self.learner.init_carry(state.learner.network, self.together)
        return _each(jnp.asarray(fresh), jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), first), carry)

    def _put(self, carries: Carry | None, slots: Array, new: Carry) -> Carry:
        return jax.tree.map(lambda leaf, one: leaf.at[slots].set(one), carries, new)

    def _to_batch(self, carry: Carry) -> Carry:
        """Return carries as the learner takes them: layers in front, then the streams, or the only one."""
        if self.learner.batch_size is None:
            return jax.tree.map(lambda leaf: leaf[0], carry)
        return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), carry)

    def _from_batch(self, carry: Carry | None) -> Carry:
        if self.learner.batch_size is None:
            return jax.tree.map(lambda leaf: leaf[None], carry)
        return jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), carry)

    def _rows(self, rows: Any) -> Array:
        """Return a row of each member as chunks of one step, or that of the only one as a chunk."""
        return jnp.asarray(rows) if self.learner.batch_size is None else jnp.asarray(rows)[:, None]

    def _unrows(self, outputs: Array) -> Float[Array, "K O"]:
        return outputs if self.learner.batch_size is None else outputs[:, 0]

    def _one_place(self) -> tuple[Carry, Waiting]:
        """Return the carry of a member that has had no row, and its ring."""
        network, dtype = self.learner.network, jnp.result_type(float)
        carry = self.learner.init_carry(network, None)
        ring = jax.tree.map(lambda leaf: jnp.zeros((self.places, *leaf.shape), leaf.dtype), carry)
        sizes = (self.places, 1, network.input_size), (self.places, 1, network.output_size)
        return carry, Waiting(ring, jnp.zeros(sizes[0], dtype), jnp.zeros(sizes[1], dtype))

    def _check_memory(self) -> None:
        leaves = jax.tree.leaves(jax.eval_shape(self._one_place))
        one = sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
        room = MEMBER_BYTES // one - 1
        if self.members > room:
            late = f" and delay={self.waits}" if self.waits else ""
            raise ValueError(
                f"members={self.members}{late}: their memory would take {one * (self.members + 1) / 2**20:.0f} MiB, at "
                f"most {MEMBER_BYTES / 2**20:.0f} MiB are kept; with this network there is room for {max(room, 0)} "
                "members; use fewer, a smaller network or labels that come sooner"
            )


@lru_cache(maxsize=16)
def member_learner(model: Model) -> MemberLearner:
    """Return the learner of a model with members; equal models share one, and with it their compiled programs."""
    assert model.members is not None
    return MemberLearner(build_learner(model), members=model.members, delay=model.delay)


def _read(carries: Any, slots: Array) -> Any:
    """Return the carries of some places, read once and for all."""

    def there() -> Any:
        return jax.tree.map(lambda leaf: leaf[slots], carries)

    # A plain read would be fused into whatever uses it and be repeated there, also behind the write of what comes next,
    # and for that the compiler would copy all places. A branch is no part of a fusion; this one is always taken.
    return lax.cond(slots[0] >= 0, there, lambda: jax.tree.map(jnp.zeros_like, jax.eval_shape(there)))


def _mean_of(counts: Bool[Array, "K"]) -> Float[Array, "K"]:
    """Return weights that make a learner's mean over K streams the mean over those that count."""
    weight = counts.size / jnp.maximum(counts.sum(), 1)
    return jnp.where(counts, weight, 0).astype(jnp.result_type(float))


def _finite(states: Any) -> Bool[Array, "K"]:
    leaves = [jnp.isfinite(leaf).reshape(len(leaf), -1).all(axis=1) for leaf in jax.tree.leaves(states)]
    return jnp.stack(leaves).all(axis=0)


def _each(condition: Array, yes: Any, no: Any) -> Any:
    """Choose for each of K members."""
    return jax.tree.map(partial(_choose, condition), yes, no)


def _choose(condition: Array, yes: Array, no: Array) -> Array:
    return jnp.where(condition.reshape(-1, *[1] * (yes.ndim - 1)), yes, no)
