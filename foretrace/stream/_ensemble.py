"""The mixture of experts, and the network that joins it, as one learner of a stream.

    network    outputs of the new rows, as it learns late labels         (`_learner.py`, `_member_learner.py`), or none
    mixture    predicts the same rows, its experts and the network's outputs together; learns the same late labels

The mixture takes raw numbers and class indices, which the host has at hand, and its own program runs behind that of the
network: so neither knows of the other's state, and the network alone is the program that it is without a mixture. What
the mixture predicts is returned as the network's outputs would be, in the scale of `number_predictions` or as logits.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from foretrace._experts.mixture import Mixture, MixtureState, mixture
from foretrace._experts.rows import pack
from foretrace._experts.shape import Shape
from foretrace._learner.packing import Packed, Packing
from foretrace._rows.delayed_labels import LabelledRow
from foretrace._rows.number_target import number_predictions
from foretrace._rows.target import ClassContext, Context
from foretrace._types import PRNGKeyArray
from foretrace.stream._learner import StreamLearner, StreamState, StreamStep, stream_learner
from foretrace.stream._member_learner import MemberLearner, member_learner
from foretrace.stream._model import made_once
from foretrace.stream._model_config import ModelConfig
from foretrace.stream._ring import num_bytes

MAX_MIXTURE_BYTES = 2**30
"""Maximum memory of a mixture: its experts, and the past and the late labels of all members."""


class EnsembleState(NamedTuple):
    """Everything that a network and a mixture change, as it is or packed.

    Args:
        network: state of the network; None if there is none.
        mixture: state of the mixture.
    """

    network: StreamState | Packed | None
    mixture: MixtureState | Packed


class EnsemblePacking(NamedTuple):
    """Turn states of an ensemble into few arrays and back.

    Args:
        network: packing of the network's state; None if there is none.
        mixture: packing of the mixture's state.
    """

    network: Packing | None
    mixture: Packing

    def pack(self, state: Any) -> EnsembleState:
        """Return a state whose parts are packed."""
        network = None if self.network is None else self.network.pack(state.network)
        return EnsembleState(network, self.mixture.pack(state.mixture))

    def unpack(self, state: Any) -> EnsembleState:
        """Return the state that `pack` was called on."""
        network = None if self.network is None else self.network.unpack(state.network)
        return EnsembleState(network, self.mixture.unpack(state.mixture))


class Ensemble:
    """A mixture, and the network that is one of its experts.

    Args:
        network: learner of the network; None if it takes no part.
        mixture: mixture of experts.

    Raises:
        ValueError: the state would take more than `MAX_MIXTURE_BYTES`.
    """

    def __init__(self, network: StreamLearner | MemberLearner | None, mixture: Mixture):
        self.network = network
        self.mixture = mixture
        self.packing = EnsemblePacking(None if network is None else network.packing, mixture.packing)
        self._check_memory()

    def _check_memory(self) -> None:
        state, shape = jax.eval_shape(self.mixture.init), self.mixture.shape
        size, of_members = num_bytes(state), num_bytes((state.pasts, state.rings, state.turns, state.ages))
        if size > MAX_MIXTURE_BYTES:
            # One slot more than there are members: that of missing rows.
            each = of_members / (shape.slots + 1)
            room = int((MAX_MIXTURE_BYTES - size + of_members) / each) - 1
            raise ValueError(
                f"members={shape.slots}, delay={shape.delay}: a mixture of experts would take {size / 2**20:.0f} MiB, "
                f"but at most {MAX_MIXTURE_BYTES / 2**20:.0f} MiB are allowed; with this delay there is room for "
                f"{max(room, 0)} members; use fewer members, a shorter delay, or a network alone, such as --size small"
            )

    def init(self, key: PRNGKeyArray | None = None) -> EnsembleState:
        """Return the state before the first row."""
        network = None if self.network is None else self.network.init(key)
        return EnsembleState(network, self.mixture.init())

    def mix(
        self,
        state: EnsembleState,
        xs: np.ndarray,
        contexts: Sequence[Context],
        resolved: Sequence[LabelledRow | None],
        *,
        step: StreamStep | None,
        size: int,
        slots: Sequence[int] | None = None,
        is_new: Sequence[bool] | None = None,
    ) -> tuple[EnsembleState, StreamStep]:
        """Predict rows, and learn the rows whose labels have come; the mixture's state is donated.

        Args:
            state: state, with that of the network behind its step.
            xs: inputs of the rows, without earlier labels.
            contexts: what was known of the target when each row was predicted.
            resolved: rows whose labels have come.
            step: step of the network on the same rows; None if there is none.
            size: number of rows of a step.
            slots: slot of each row. Default: all belong to one stream.
            is_new: whether the member of each row starts anew.
        """
        outside, features = self._raw(None if step is None else step.newest, contexts)
        shape = self.mixture.shape
        rows = pack(
            shape, xs, contexts, resolved, slots=slots, is_new=is_new, outside=outside, features=features, size=size
        )
        after, mixed = self.mixture.step(state.mixture, rows)
        old = [context if row is None else row.context for row, context in _pairs(resolved, contexts)]
        measures = None if step is None else step.measures
        found = StreamStep(
            to_outputs(np.asarray(mixed.resolved)[: len(old)], old),
            to_outputs(np.asarray(mixed.newest)[: len(contexts)], contexts),
            measures,
            np.asarray(mixed.errors),
        )
        return EnsembleState(state.network, after), found

    def predict(
        self,
        state: EnsembleState,
        x: np.ndarray,
        context: Context,
        *,
        output: np.ndarray | None,
        slot: int = 0,
        is_new: bool = False,
    ) -> np.ndarray:
        """Return the outputs for a row if it came next; nothing changes.

        Args:
            state: present state.
            x: inputs of the row, without earlier labels.
            context: what is known of the target.
            output: output of the network for it; None if there is none.
            slot: slot of its member.
            is_new: whether its member starts anew.
        """
        rows = self._row(x, context, output, slot, is_new)
        return to_outputs(np.asarray(self.mixture.predict(state.mixture, rows)), [context])[0]

    def advance(
        self,
        state: EnsembleState,
        x: np.ndarray,
        context: Context,
        *,
        output: np.ndarray | None,
        slot: int = 0,
        is_new: bool = False,
    ) -> tuple[EnsembleState, np.ndarray]:
        """Return the state behind the next row and the outputs for it, without learning; see `predict`."""
        after, mixed = self.mixture.advance(state.mixture, self._row(x, context, output, slot, is_new))
        return EnsembleState(state.network, after), to_outputs(np.asarray(mixed.newest), [context])[0]

    def _row(self, x: np.ndarray, context: Context, output: np.ndarray | None, slot: int, is_new: bool) -> np.ndarray:
        outside, features = self._raw(None if output is None else output[None], [context])
        return pack(
            self.mixture.shape, x[None], [context], slots=[slot], is_new=[is_new], outside=outside, features=features
        )

    def _raw(self, outputs: Any, contexts: Sequence[Context]) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return predictions of the network as the mixture takes them, (1, C, O), and its features, (C, N)."""
        if outputs is None:
            return None, None
        shape, found = self.mixture.shape, np.asarray(outputs)[: len(contexts)]
        outputs, features = found[:, : shape.outputs], found[:, shape.outputs :]
        if shape.classes:
            return outputs[None], features
        rows = [number_predictions(context, output) for context, output in zip(contexts, outputs, strict=True)]  # type: ignore[arg-type]
        return np.array(rows).reshape(1, len(contexts), -1), features


def to_outputs(predicted: np.ndarray, contexts: Sequence[Context]) -> np.ndarray:
    """Return predictions as outputs of a network: logits as they are, numbers as `number_predictions` takes them."""
    if not contexts or isinstance(contexts[0], ClassContext):
        return predicted
    out = np.empty_like(predicted)
    for i, context in enumerate(contexts):
        assert not isinstance(context, ClassContext)
        out[i] = (predicted[i] - np.asarray(context.base)) / np.asarray(context.scale)
    return out


@made_once
def ensemble(config: ModelConfig, shape: Shape) -> Ensemble:
    """Return the ensemble of a model; equal models share one, and with it their compiled programs."""
    network: StreamLearner | MemberLearner | None = None
    if config.has_network:
        learner_of = stream_learner if shape.members is None else member_learner
        network = learner_of(config, shape)
    return Ensemble(network, mixture(shape, config.other_experts))


def _pairs(
    resolved: Sequence[LabelledRow | None], contexts: Sequence[Context]
) -> list[tuple[LabelledRow | None, Context]]:
    """Return each resolved row with a context that stands in where there is none."""
    return [(row, contexts[min(i, len(contexts) - 1)]) for i, row in enumerate(resolved)]
