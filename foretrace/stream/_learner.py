"""A learner for streams whose labels come late: predict now, learn when the labels are there, in constant memory.

    outputs_j, carry_{j+1} = network(carry_j, xs_j)                   now, with the present parameters
    parameters             = learn(carry_{j-d}, xs_{j-d}, ys_{j-d})   d chunks later, on the carry of that step

The carries in between wait in a ring. Without delay both are one call: the outputs of a learning step are computed with
the parameters before it. Either way a prediction never knows its label: scores are progressive.
"""

from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from foretrace._experts.shape import Shape
from foretrace._learner.learner import Learner
from foretrace._learner.packing import Packed, Packing
from foretrace._learner.state import Info, LearnerState
from foretrace._types import Array, Float, Int, PRNGKeyArray
from foretrace.stream._calibration import Calibration, calibrated, new_calibration, with_labels
from foretrace.stream._model import build_learner, made_once
from foretrace.stream._model_config import ModelConfig
from foretrace.stream._ring import PendingSteps, Ring, num_bytes, pending_step

S = TypeVar("S")

MAX_PENDING_BYTES = 2**30
"""Maximum memory of the steps that wait for their labels."""


class StreamState(NamedTuple):
    """Everything that learning on a stream changes on the device.

    In the state of a `MemberLearner`, carry, pending and turn have an axis of slots in front.

    Args:
        learner: network, optimiser and carry.
        pending: steps whose labels have not come; None without delay.
        turn: turn of the ring of pending steps.
        calibration: calibration of the probabilities; None for numbers.
    """

    learner: LearnerState
    pending: PendingSteps | None
    turn: Int[Array, "*P"]
    calibration: Calibration | None = None


AnyState = TypeVar("AnyState", bound=StreamState | Packed)


class Measures(NamedTuple):
    """What a step says of itself.

    Args:
        loss: mean loss over the rows that have a label.
        gradient_norm: norm of the gradient before clipping.
        update_norm: norm of the change of the parameters.
        accepted: 1 if the step was accepted, 0 if it was refused because it was not finite.
    """

    loss: float
    gradient_norm: float
    update_norm: float
    accepted: float


class StreamStep(NamedTuple):
    """Result of a learning step.

    Args:
        outputs: outputs of the chunk whose labels have come, as they were predicted then.
        newest: outputs of the chunk that has come; the same without delay.
        measures: the fields of `Measures` as one array, which is one transfer from the device; None without a network.
        errors: errors of each expert for the chunk whose labels have come; None without a mixture.
    """

    outputs: Float[Array, "C O"] | Float[np.ndarray, "C O"]
    newest: Float[Array, "C O"] | Float[np.ndarray, "C O"]
    measures: Float[Array, "4"] | None
    errors: Float[np.ndarray, "C E"] | None = None

    def read_measures(self) -> Measures | None:
        """Return the measures as numbers, None if no network has learned; this waits for the device."""
        if self.measures is None:
            return None
        return Measures(*np.asarray(self.measures, np.float64).tolist())


class StreamLearner:
    """Learn one stream chunk by chunk; the labels of a chunk come `delay` rows after its inputs.

    Methods take a state as it is, or packed by `packing`, which takes less time a call, and return it likewise.

    Args:
        learner: learner of one unbatched stream. It updates its parameters at every chunk that has a label.
        chunk: number of rows of a chunk.
        delay: number of rows after which a label comes.
        num_calibrated: number of outputs, the first ones, that are logits to be calibrated.

    Raises:
        ValueError: chunk or delay is out of range, or pending steps would take more than `MAX_PENDING_BYTES`.
    """

    def __init__(self, learner: Learner, *, chunk: int = 1, delay: int = 0, num_calibrated: int = 0):
        if chunk < 1 or delay < 0:
            raise ValueError(f"chunk={chunk} must be at least 1 and delay={delay} at least 0")
        self.learner = learner
        self.chunk = chunk
        self.delay = delay
        self.num_calibrated = num_calibrated
        self.ring = Ring(-(-delay // chunk))
        self._check_memory()
        self.packing = Packing(jax.eval_shape(self.init))
        self._step = jax.jit(self.packing.keeping_packed(self._traced_step), donate_argnums=0)
        self._predict = jax.jit(self.packing.taking_packed(lambda state, xs: self._traced_advance(state, xs)[1]))
        self._advance = jax.jit(self.packing.keeping_packed(self._traced_advance), donate_argnums=0)

    def init(self, key: PRNGKeyArray | None = None) -> StreamState:
        """Return the state before the first row."""
        state = self.learner.init(key)
        pending = self.ring.empty(self._pending_step(state)) if self.ring.delay else None
        # Steps donate the memory of their argument: the learner's own network must not be part of it.
        calibration = new_calibration(self.num_calibrated) if self.num_calibrated else None
        return copy_state(StreamState(state, pending, jnp.zeros((), jnp.int32), calibration))

    def step(self, state: AnyState, xs: Any, ys: Any, mask: Any) -> tuple[AnyState, StreamStep]:
        """Predict a chunk, and learn from the chunk whose labels have come; `state` is donated.

        Args:
            state: state from `init` or the previous call.
            xs: inputs of the new chunk, (C, I).
            ys: labels of the chunk that came `ring.delay` calls ago.
            mask: which labels count. If none does, parameters and optimiser stay as they are.
        """
        return self._step(state, xs, ys, mask)

    def predict(self, state: StreamState | Packed, xs: Any) -> Float[Array, "C O"]:
        """Return the outputs for a chunk if it came next; nothing changes."""
        return self._predict(state, xs)

    def advance(self, state: AnyState, xs: Any) -> tuple[AnyState, Float[Array, "C O"]]:
        """Return the state behind the next chunk and the outputs for it, without learning; `state` is donated."""
        return self._advance(state, xs)

    def _traced_advance(self, state: StreamState, xs: Array) -> tuple[StreamState, Array]:
        outputs, learner = self.learner.predict(state.learner, xs, sensitivity=False)
        return state._replace(learner=learner), self._calibrated(state, outputs)

    def _calibrated(self, state: StreamState, outputs: Array) -> Array:
        return outputs if state.calibration is None else calibrated(state.calibration, outputs)

    def _traced_step(self, state: StreamState, xs: Array, ys: Array, mask: Array) -> tuple[StreamState, StreamStep]:
        if state.pending is None:
            after, info = self.learner.step(state.learner, xs, ys, mask=mask)
            outputs = self._calibrated(state, info.outputs)
            calibration = calibration_after(state, info.outputs, ys, mask)
            after_it = state._replace(learner=after, calibration=calibration)
            return after_it, StreamStep(outputs, outputs, stack_measures(info))
        newest, ahead = self.learner.predict(state.learner, xs)
        newest = self._calibrated(state, newest)
        before = state.learner.carry
        assert before is not None
        new = PendingSteps(before, jnp.asarray(xs, state.pending.xs.dtype), newest)
        pending = self.ring.write(state.pending, state.turn, new)
        turn = self.ring.next_turn(state.turn)
        old = self.ring.read(pending, turn)
        learned, info = self.learner.step(state.learner._replace(carry=old.carry), old.xs, ys, mask=mask)
        after = learned._replace(carry=ahead.carry)
        calibration = calibration_after(state, info.outputs, ys, mask)
        step = StreamStep(old.outputs, newest, stack_measures(info))
        return StreamState(after, pending, turn, calibration), step

    def _pending_step(self, state: LearnerState) -> PendingSteps:
        network = state.network
        assert state.carry is not None
        return pending_step(state.carry, self.chunk, network.input_size, network.output_size)

    def _check_memory(self) -> None:
        size = num_bytes(jax.eval_shape(lambda: self._pending_step(self.learner.init())))
        if size * self.ring.places > MAX_PENDING_BYTES:
            room = max(MAX_PENDING_BYTES // size - 1, 0) * self.chunk
            raise ValueError(
                f"delay={self.delay}: {self.ring.delay} steps that wait for their labels would take "
                f"{size * self.ring.places / 2**20:.0f} MiB, but at most {MAX_PENDING_BYTES / 2**20:.0f} MiB are "
                f"allowed; with this network the delay can be {room} rows; use a smaller network or a larger chunk"
            )


@made_once
def stream_learner(config: ModelConfig, shape: Shape) -> StreamLearner:
    """Return the learner of a model; equal models share one, and with it their compiled programs."""
    learner = build_learner(config, shape)
    return StreamLearner(learner, chunk=shape.chunk, delay=shape.delay, num_calibrated=shape.logits)


def calibration_after(state: StreamState, outputs: Array, ys: Array, mask: Array) -> Calibration | None:
    """Return the calibration behind the labels of a step, whose rows have these outputs of the network."""
    if state.calibration is None:
        return None
    return with_labels(state.calibration, outputs, jnp.asarray(ys), jnp.asarray(mask))


def copy_state(state: S) -> S:
    """Return a copy that may be donated to a step."""
    with jax.enable_x64(True):  # parts of a state may be in float64 whatever the mode is
        return jax.tree.map(jnp.copy, state)


def empty_labels(shape: Shape) -> np.ndarray:
    """Return the labels of a step, zeros to be filled."""
    rows = shape.chunk * shape.together
    return np.zeros(rows, np.int32) if shape.classes else np.zeros((rows, shape.outputs))


def stack_measures(info: Info) -> Float[Array, "4"]:
    """Return the fields of `Measures` as one array."""
    return jnp.stack([info.loss, info.gradient_norm, info.update_norm, info.accepted.astype(info.loss.dtype)])
