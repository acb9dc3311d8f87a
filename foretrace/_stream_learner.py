"""A learner for streams whose labels come late: predict now, learn when the labels are there, in constant memory.

    outputs_j, carry_{j+1} = network(carry_j, xs_j)              now, with the parameters of now
    parameters             = learn(carry_{j-d}, xs_{j-d}, ys_{j-d})   d chunks later, on the carry that step had

The carries in between wait in a ring of d places. Without delay both are one call: the outputs of a learning step
are those of the parameters before it. Either way a prediction never knows its label: scores are progressive.
"""

import dataclasses
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from foretrace._cells.lru import LRU
from foretrace._forward import Carry
from foretrace._learner import Info, Learner, LearnerState
from foretrace._loss import softmax_cross_entropy, squared_error
from foretrace._network import Network
from foretrace._optimizer import adamw, bounded, holding, in_front_of_recurrences
from foretrace._rule import as_rule
from foretrace._types import Array, Bool, Float, Int, PRNGKeyArray

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
        turn: place of the ring whose labels come next.
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


@dataclasses.dataclass(frozen=True)
class Model:
    """What is learned by: sizes, rule and optimiser of a network for one stream, as plain data.

    Args:
        input_size: inputs of a row.
        output_size: logits, or numbers that are predicted.
        classes: whether the outputs are logits of one class.
        depth: recurrent layers.
        model_size: features between the layers.
        state_size: modules of a layer.
        rule: what is differentiated through time.
        credit_depth: through the memory of how many recurrences above a parameter its errors travel as well.
        learning_rate: of AdamW.
        clip: largest norm of a gradient; None for no clipping.
        overshoot: largest promise of an update, as a share of the loss; None for no bound.
        eps: added to the root of AdamW's second moment.
        sensitivity_decay: share of the sensitivities that is kept at every update.
        train_encoder: train the encoder and the norms in front of the recurrences as well.
        r_min: inner radius of the eigenvalues to begin with.
        r_max: outer radius.
        recurrent_factor: rate of the eigenvalues and input gains relative to the rest.
        chunk: rows that are learned together.
        delay: rows after which a label comes.
        seed: of the initial network.
        members: most streams that share the network; None for one stream.
        together: rows of distinct members that are learned in one step.
    """

    input_size: int
    output_size: int
    classes: bool
    depth: int = 2
    model_size: int = 32
    state_size: int = 32
    rule: str = "online"
    credit_depth: int = 0
    learning_rate: float = 1e-3
    clip: float | None = 1.0
    overshoot: float | None = None
    eps: float = 1e-8
    sensitivity_decay: float = 1.0
    train_encoder: bool = True
    r_min: float = 0.0
    r_max: float = 1.0
    recurrent_factor: float = 0.5
    chunk: int = 1
    delay: int = 0
    seed: int = 0
    members: int | None = None
    together: int = 1


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
        self._check_memory()
        self._step = jax.jit(self._traced_step, donate_argnums=0)
        self._look = jax.jit(partial(learner.predict, sensitivity=False))
        self._pass = jax.jit(self._traced_pass, donate_argnums=0)

    def init(self, key: PRNGKeyArray | None = None) -> StreamState:
        """Return the state before the first row."""
        state = self.learner.init(key)
        one = self._one_waiting(state)
        waiting = jax.tree.map(lambda leaf: jnp.zeros((self.waits, *leaf.shape), leaf.dtype), one)
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
        return self._look(state.learner, xs)[0]

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
        old = jax.tree.map(lambda ring: ring[state.turn], state.waiting)
        before = state.learner.carry
        assert before is not None and ahead.carry is not None
        learned, info = learn(self.learner, state.learner._replace(carry=old.carry), old.xs, ys, mask)
        new = Waiting(before, jnp.asarray(xs, old.xs.dtype), newest)
        waiting = jax.tree.map(lambda ring, leaf: ring.at[state.turn].set(leaf), state.waiting, new)
        after = learned._replace(carry=_chosen(_finite(ahead.carry.h), ahead.carry, before))
        turn = jnp.where(state.turn + 1 == self.waits, 0, state.turn + 1).astype(jnp.int32)
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
        if size * self.waits > WAITING_BYTES:
            raise ValueError(
                f"delay={self.delay}: {self.waits} steps that wait for their labels would take "
                f"{size * self.waits / 2**20:.0f} MiB, at most {WAITING_BYTES / 2**20:.0f} MiB are kept; with this "
                f"network the delay can be {WAITING_BYTES // size * self.chunk} rows; use a smaller network "
                "or a larger chunk"
            )


@lru_cache(maxsize=16)
def stream_learner(model: Model) -> StreamLearner:
    """Return the learner of a model; equal models share one, and with it their compiled programs."""
    return StreamLearner(build_learner(model), chunk=model.chunk, delay=model.delay)


def build_learner(model: Model) -> Learner:
    """Return what learns: a network and its optimiser, for as many streams as learn in one step."""
    cell = LRU.factory(state_size=model.state_size, r_min=model.r_min, r_max=model.r_max)
    network = Network(
        model.input_size,
        model.output_size,
        model_size=model.model_size,
        depth=model.depth,
        cell=cell,
        key=jax.random.key(model.seed),
    )
    optimizer = adamw(model.learning_rate, clip=model.clip, eps=model.eps, recurrent_factor=model.recurrent_factor)
    if not model.train_encoder:
        optimizer = holding(optimizer, in_front_of_recurrences)
    return Learner(
        network,
        rule=as_rule(model.rule).with_depth(model.credit_depth),
        optimizer=optimizer if model.overshoot is None else bounded(optimizer, model.overshoot),
        loss=softmax_cross_entropy if model.classes else squared_error,
        sensitivity_decay=model.sensitivity_decay,
        # One stream is faster without an axis of streams.
        batch_size=None if model.together == 1 else model.together,
    )


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
