"""From rows to learning steps: what every intake does, and the rows of one stream in chunks."""

import abc
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from foretrace._experts.shape import Shape
from foretrace._learner.packing import Packed
from foretrace._recurrence.chunk import Carry
from foretrace._rows.delayed_labels import DelayedLabels, LabelledRow, saved_row
from foretrace._rows.saved import MOST, check_within
from foretrace._rows.target import Context
from foretrace._runs.config_json import from_json
from foretrace.stream._ensemble import Ensemble, EnsembleState, ensemble
from foretrace.stream._learner import StreamLearner, StreamState, StreamStep, empty_labels, stream_learner
from foretrace.stream._member_learner import MemberLearner
from foretrace.stream._model_config import ModelConfig
from foretrace.stream._parts import Parts

Row = Mapping[Any, Any]

NetworkState = StreamState | Packed
State = NetworkState | EnsembleState
"""State of a network alone, or of a mixture and the network that may join it."""


class IntakeStep(NamedTuple):
    """Result of learning from some rows.

    Args:
        state: state after the step.
        step: outputs and measures.
        resolved: for each of the outputs, the row whose label has come; None if there is none.
        inputs: inputs of the rows that came.
    """

    state: State
    step: StreamStep
    resolved: Sequence[LabelledRow | None]
    inputs: np.ndarray


class AbstractIntake(abc.ABC):
    """Turn rows and their targets into steps of a learner.

    Args:
        labels: inputs and pending labels of a stream before its first row.
        config: options of the model that learns, as `resolve` returns them.
        shape: shape of the stream, as `resolve` returns it.
        size: number of rows of a full step.
    """

    def __init__(self, labels: DelayedLabels, config: ModelConfig, shape: Shape, size: int):
        self.encoder = labels.encoder
        self.target = labels.target
        self.width = labels.width
        self.config = config
        self.shape = shape
        self.has_network = config.has_network
        self.size = size
        self.parts = Parts()

    def __getstate__(self) -> dict[str, Any]:
        # Compiled programs are not pickled; equal models find theirs again.
        return {name: value for name, value in self.__dict__.items() if name not in ("ensemble", "network")}

    # Looking it up by the model takes longer than encoding a number: once is enough.
    @cached_property
    def ensemble(self) -> Ensemble | None:
        """The mixture of the model and the network that may join it; None for a network alone."""
        return ensemble(self.config, self.shape) if self.config.other_experts else None

    @property
    @abc.abstractmethod
    def network(self) -> StreamLearner | MemberLearner:
        """The learner of the network."""

    @property
    def learner(self) -> StreamLearner | MemberLearner | Ensemble:
        """What makes the first state, to learn from rows or to be loaded."""
        return self.ensemble or self.network

    def network_state(self, state: State) -> NetworkState | None:
        """Return the state of the network; None if it takes no part."""
        return state.network if isinstance(state, EnsembleState) else state

    @abc.abstractmethod
    def learn(self, state: State, rows: Sequence[tuple[Row, Any]]) -> IntakeStep:
        """Learn from rows with their targets, at most `size`; `state` is donated."""

    @abc.abstractmethod
    def predict(self, state: State, row: Row) -> np.ndarray:
        """Return the outputs for a row if it came next; nothing changes."""

    @abc.abstractmethod
    def advance(self, state: State, row: Row, value: Any) -> tuple[np.ndarray, State, Context]:
        """Return the outputs for the next row, the state behind it, and what was known of the target before it.

        Nothing is learned; `state` is donated.
        """

    @abc.abstractmethod
    def carry(self, state: StreamState) -> Carry:
        """Return the carry of the stream whose row came last."""

    @abc.abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Return everything that the next rows depend on."""

    @abc.abstractmethod
    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `to_json` returned of an object made with the same arguments."""

    def fits(self, rows: Sequence[tuple[Row, Any]], row: Row) -> bool:
        """Return whether a row may be learned in one step with rows that came before it."""
        return True

    def select_member(self, name: Hashable) -> bool:
        """Set the target's last value to that of a member; return False if it has had no row since its start."""
        return True

    def counts(self) -> dict[str, Any]:
        """Return what is counted beside the encoder and the target."""
        return {}

    def pop_news(self) -> list[str]:
        """Return what encoder and target could not use for the first time, a sentence each, and forget it."""
        news = [*self.encoder.news, *self.target.news]
        self.encoder.news, self.target.news = [], []
        return news

    def _own_inputs(self, xs: np.ndarray) -> np.ndarray:
        """Return inputs without those of the last known label."""
        return xs[..., : self.encoder.width]

    def _mixed(
        self,
        state: State,
        network: NetworkState | None,
        step: StreamStep | None,
        xs: np.ndarray,
        contexts: Sequence[Context],
        resolved: Sequence[LabelledRow | None],
        **whose: Any,
    ) -> tuple[State, StreamStep]:
        """Return the state and the step of the mixture behind those of the network, or the latter if it is alone."""
        if isinstance(state, EnsembleState):
            assert self.ensemble is not None
            state, own = state._replace(network=network), self._own_inputs(xs)
            if step is not None:
                step = step._replace(newest=np.asarray(step.newest))  # waits for the network
                self.parts.end("network")
            found = self.ensemble.mix(state, own, contexts, resolved, step=step, size=self.size, **whose)
            self.parts.end("mixture")
            return found
        assert network is not None and step is not None
        return network, step

    def _learn_outputs(self, step: StreamStep, resolved: Sequence[LabelledRow | None]) -> None:
        """Learn how far predictions were from the labels that have come, for the intervals of the rows to come."""
        if self.shape.classes or not any(row is not None for row in resolved):
            return
        outputs = np.asarray(step.outputs)  # waits for the network
        self.parts.end("mixture" if self.config.other_experts else "network")
        for row, output in zip(resolved, outputs, strict=False):
            if row is not None:
                self.target.learn_output(output, row.targets, row.context)
        self.parts.end("intervals")

    def _label_arrays(self, resolved: Sequence[LabelledRow | None]) -> tuple[np.ndarray, np.ndarray]:
        """Return the labels that have come as the learner takes them, and the mask of those that there are."""
        labels = empty_labels(self.shape)
        mask = np.zeros(len(labels), bool)
        for i, row in enumerate(resolved):
            if row is not None and row.label is not None:
                labels[i] = row.label
                mask[i] = True
        return labels, mask


class SavedOneStream(NamedTuple):
    """What is saved of the intake of one stream."""

    labels: dict[str, Any]
    num_chunks: int
    for_network: list[Any]


class OneStream(AbstractIntake):
    """The rows of one stream, a chunk in each step.

    Args:
        labels: inputs and pending labels of the stream.
        config: options of the model that learns, as `resolve` returns them.
        shape: shape of the stream, as `resolve` returns it.
    """

    def __init__(self, labels: DelayedLabels, config: ModelConfig, shape: Shape):
        super().__init__(labels, config, shape, shape.chunk)
        self.labels = labels
        self.num_chunks = 0
        self.for_network: deque[LabelledRow] = deque()

    @cached_property
    def network(self) -> StreamLearner:
        """The learner of the network."""
        return stream_learner(self.config, self.shape)

    def learn(self, state: State, rows: Sequence[tuple[Row, Any]]) -> IntakeStep:
        """Learn from a chunk of rows with their targets; the last chunk may be shorter."""
        xs = np.zeros((self.size, self.width))
        contexts: list[Context] = []
        resolved: list[LabelledRow | None] = []
        for i, (row, value) in enumerate(rows):
            xs[i] = self.labels.push(row, value)
            contexts.append(self.labels.newest)
            resolved.append(next(iter(self.labels.pop_resolved(1)), None))
        self.num_chunks += 1
        late: list[LabelledRow] = []
        if self.has_network:  # it learns the labels of a whole chunk; the experts learn a label as soon as it comes
            self.for_network.extend(row for row in resolved if row is not None)
            if self.num_chunks > self.shape.late_steps:
                late = [self.for_network.popleft() for _ in range(min(self.size, len(self.for_network)))]
            if not self.config.other_experts:
                resolved = [*late]
        self.parts.end("encoding")
        step, network = None, self.network_state(state)
        if network is not None:
            network, step = self.network.step(network, xs, *self._label_arrays(late))
        state, step = self._mixed(state, network, step, xs, contexts, resolved)
        self._learn_outputs(step, resolved)
        return IntakeStep(state, step, resolved, xs[: len(rows)])

    def predict(self, state: State, row: Row) -> np.ndarray:
        """Return the outputs for a row if it came next; nothing changes."""
        x, network = self.labels.encode(row), self.network_state(state)
        output = None if network is None else np.asarray(self.network.predict(network, x[None]))[0]
        if isinstance(state, EnsembleState):
            assert self.ensemble is not None
            return self.ensemble.predict(state, self._own_inputs(x), self.target.context(), output=output)
        assert output is not None
        return output

    def advance(self, state: State, row: Row, value: Any) -> tuple[np.ndarray, State, Context]:
        """Return the outputs for the next row, the state behind it, and what was known of the target before it."""
        x, network = self.labels.advance(row, value), self.network_state(state)
        output, context = None, self.labels.newest
        if network is not None:
            network, outputs = self.network.advance(network, x[None])
            output = np.asarray(outputs)[0]
        if isinstance(state, EnsembleState):
            assert self.ensemble is not None
            state = state._replace(network=network)
            state, output = self.ensemble.advance(state, self._own_inputs(x), context, output=output)
            return output, state, context
        assert output is not None and network is not None
        return output, network, context

    def carry(self, state: StreamState) -> Carry:
        """Return the carry of the stream."""
        assert state.learner.carry is not None
        return state.learner.carry

    def to_json(self) -> dict[str, Any]:
        """Return everything that the next rows depend on."""
        late = [saved_row(row) for row in self.for_network]
        return {"labels": self.labels.to_json(), "num_chunks": self.num_chunks, "for_network": late}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `to_json` returned of an object made with the same arguments."""
        saved = from_json(SavedOneStream, state)
        check_within("num_chunks", [saved.num_chunks], 0, MOST)
        self.labels.restore(saved.labels)
        self.num_chunks = saved.num_chunks
        self.for_network = deque(map(self.labels.labelled_row, saved.for_network))
