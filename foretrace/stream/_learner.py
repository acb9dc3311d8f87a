"""A learner for streams whose labels come late: predict now, learn when the labels are there, in constant memory.

    outputs_j, carry_{j+1} = network(carry_j, xs_j)              now, with the parameters of now
    parameters             = learn(carry_{j-d}, xs_{j-d}, ys_{j-d})   d chunks later, on the carry that step had

The carries in between wait in a ring of d + 1 places. Without delay both are one call: the outputs of a learning step
are those of the parameters before it. Either way a prediction never knows its label: scores are progressive.
"""

from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from foretrace._learner.learner import Learner
from foretrace._learner.state import Info, LearnerState
from foretrace._recurrence.chunk import Carry
from foretrace._types import Array, Bool, Float, Int, PRNGKeyArray
from foretrace.stream._model import Model, build_learner

WAITING_BYTES = 2**30
"""Most memory that steps may take which wait for their labels."""


class Waiting(NamedTuple):
    """Chunks whose labels have not come, in a ring: the carry before each, its inputs, and what was predicted."""

    carry: Carry
    xs: Float[Array, "W C I"]
    outputs: Float[Array, "W C O"]


class StreamState(NamedTuple):
    """Everything that learning on a stream changes on the device.

    Of a `MemberLearner`, carry, waiting and turn have an axis of places in front.

    Args:
        learner: network, optimiser and carry.
        waiting: chunks whose labels have not come; None without delay.
        turn: place of the ring that the next step takes; behind it is the step whose labels come with it. Of members, a
            count that says the same modulo the number of places, and is smaller until a ring has been filled.
    """

    learner: LearnerState
    waiting: Waiting | None
    turn: Int[Array, "*P"]


class Outcome(NamedTuple):
    """What a step gives back.

    Args:
        outputs: what was predicted for the chunk whose labels have come.
        newest: what is predicted for the chunk that has come; the same without delay.
        measures: loss, gradient norm, update norm, and 1 if the step was accepted, 0 if it was not finite.
    """

    outputs: Float[Array, "C O"]
    newest: Float[Array, "C O"]
    measures: Float[Array, "4"]


class StreamLearner:
    """Learn a stream chunk by chunk, each chunk `waits` chunks after it was predicted.

    Args:
        learner: of one stream; its parameters are updated at every chunk that has a label.
        chunk: rows of a chunk.
        delay: rows after which a label comes.

    Raises:
        ValueError: chunk or delay out of range, or more steps to wait than memory should hold.
    """

    def __init__(self, learner: Learner, *, chunk: int = 1, delay: int = 0):
        if chunk < 1 or delay < 0:
            raise ValueError(f"chunk={chunk} must be at least 1 and delay={delay} at least 0")
        self.learner, self.chunk, self.delay = learner, chunk, delay
        self.waits = -(-delay // chunk)
        # One place more than wait: the new step is written before an old one is read, elsewhere, so that the ring need
        # not be copied to keep what is still to be read.
        self.places = self.waits + 1 if self.waits else 0
        self._check_memory()
        self._step = jax.jit(self._traced_step, donate_argnums=0)
        self._look = jax.jit(lambda state, xs: learner.predict(state, xs, sensitivity=False)[0])
        self._pass = jax.jit(self._traced_pass, donate_argnums=0)

    def init(self, key: PRNGKeyArray | None = None) -> StreamState:
        """Return the state before the first row."""
        state = self.learner.init(key)
        one = self._one_waiting(state)
        waiting = jax.tree.map(lambda leaf: jnp.zeros((self.places, *leaf.shape), leaf.dtype), one)
        # Steps take the memory of their argument away from whoever has it: not the learner's own network.
        return own(StreamState(state, waiting if self.waits else None, jnp.zeros((), jnp.int32)))

    def step(self, state: StreamState, xs: Any, ys: Any, mask: Any) -> tuple[StreamState, Outcome]:
        """Predict a chunk, and learn from the one whose labels have come; `state` is used up.

        Args:
            state: from `init` or the previous call.
            xs: inputs of the new chunk, (C, I).
            ys: labels of the chunk `waits` calls ago.
            mask: which of these count. If none does, parameters and optimiser stay as they are.
        """
        return self._step(state, xs, ys, mask)

    def predict(self, state: StreamState, xs: Any) -> Float[Array, "C O"]:
        """Return the outputs for what might come next; nothing changes."""
        return self._look(state.learner, xs)

    def run(self, state: StreamState, xs: Any) -> tuple[Float[Array, "C O"], StreamState]:
        """Return the outputs for the next chunk and the state behind it, without learning; `state` is used up."""
        return self._pass(state, xs)

    def _traced_pass(self, state: StreamState, xs: Array) -> tuple[Array, StreamState]:
        outputs, learner = self.learner.predict(state.learner, xs, sensitivity=False)
        return outputs, state._replace(learner=learner)

    def _traced_step(self, state: StreamState, xs: Array, ys: Array, mask: Array) -> tuple[StreamState, Outcome]:
        if state.waiting is None:
            after, info = learn(self.learner, state.learner, xs, ys, mask)
            return state._replace(learner=after), Outcome(info.outputs, info.outputs, measures(info))
        newest, ahead = self.learner.predict(state.learner, xs)
        before = state.learner.carry
        assert before is not None and ahead.carry is not None
        new = Waiting(before, jnp.asarray(xs, state.waiting.xs.dtype), newest)
        waiting = jax.tree.map(lambda ring, leaf: ring.at[state.turn].set(leaf), state.waiting, new)
        turn = jnp.where(state.turn + 1 == self.places, 0, state.turn + 1).astype(jnp.int32)
        old = jax.tree.map(lambda ring: ring[turn], waiting)
        learned, info = learn(self.learner, state.learner._replace(carry=old.carry), old.xs, ys, mask)
        after = learned._replace(carry=_chosen(_finite(ahead.carry.h), ahead.carry, before))
        return StreamState(after, waiting, turn), Outcome(old.outputs, newest, measures(info))

    def _one_waiting(self, state: LearnerState) -> Waiting:
        network = state.network
        carry = jax.tree.map(jnp.zeros_like, state.carry)
        dtype = jnp.result_type(float)
        size = (self.chunk, network.input_size), (self.chunk, network.output_size)
        return Waiting(carry, jnp.zeros(size[0], dtype), jnp.zeros(size[1], dtype))

    def _check_memory(self) -> None:
        one = jax.eval_shape(lambda: self._one_waiting(self.learner.init()))
        size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(one))
        if size * self.places > WAITING_BYTES:
            raise ValueError(
                f"delay={self.delay}: {self.waits} steps that wait for their labels would take "
                f"{size * self.places / 2**20:.0f} MiB, at most {WAITING_BYTES / 2**20:.0f} MiB are kept; with this "
                f"network the delay can be {max(WAITING_BYTES // size - 1, 0) * self.chunk} rows; use a smaller "
                "network or a larger chunk"
            )


@lru_cache(maxsize=16)
def stream_learner(model: Model) -> StreamLearner:
    """Return the learner of a model; equal models share one, and with it their compiled programs."""
    return StreamLearner(build_learner(model), chunk=model.chunk, delay=model.delay)


def learn(learner: Learner, state: LearnerState, xs: Array, ys: Array, mask: Array) -> tuple[LearnerState, Info]:
    """Return the state after a chunk, and what may be looked at; without a label nothing is learned."""
    after, info = learner.step(state, xs, ys, mask=mask)
    # An optimiser with momentum moves even without a gradient; without a label nothing is to be learned.
    network, opt_state = _chosen(mask.any(), (after.network, after.opt_state), (state.network, state.opt_state))
    return after._replace(network=network, opt_state=opt_state), info


def own(state: StreamState) -> StreamState:
    """Return a copy that steps may use up."""
    return jax.tree.map(jnp.copy, state)


def empty_labels(model: Model) -> np.ndarray:
    """Return labels of a step to be filled."""
    rows = model.chunk * model.together
    return np.zeros(rows, np.int32) if model.classes else np.zeros((rows, model.output_size))


def measures(info: Info) -> Float[Array, "4"]:
    """Return loss, gradient norm, update norm, and whether the step was accepted."""
    return jnp.stack([info.loss, info.gradient_norm, info.update_norm, info.accepted.astype(info.loss.dtype)])


def _finite(tree: Any) -> Bool[Array, ""]:
    return jnp.stack([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(tree)]).all()


def _chosen(condition: Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(partial(jnp.where, condition), yes, no)
