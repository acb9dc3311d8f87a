"""The state of a stream: packed while it runs, and with each array by its name in checkpoints."""

import os
from typing import Any

import jax

from foretrace._learner.packing import Packed
from foretrace._runs.checkpoint import load, save
from foretrace.stream._ensemble import Ensemble, EnsembleState
from foretrace.stream._intake import State
from foretrace.stream._learner import StreamLearner, copy_state
from foretrace.stream._member_learner import MemberLearner

StateLearner = StreamLearner | MemberLearner | Ensemble


def first_state(learner: StateLearner) -> State:
    """Return the state before the first row, packed."""
    return packed(learner, learner.init())


def packed(learner: StateLearner, state: State) -> State:
    """Return a state packed; programs take and return it in less time."""
    with jax.enable_x64(True):
        if not isinstance(learner, Ensemble):
            return learner.packing.pack(state)
        assert isinstance(state, EnsembleState)
        network = None if learner.network is None else learner.network.packing.pack(state.network)
        return EnsembleState(network, learner.mixture.packing.pack(state.mixture))


def unpacked(learner: StateLearner, state: State) -> State:
    """Return a state with each array by its name."""
    with jax.enable_x64(True):
        if not isinstance(learner, Ensemble):
            return learner.packing.unpack(state) if isinstance(state, Packed) else state
        assert isinstance(state, EnsembleState)
        network, mixture = state
        if learner.network is not None and isinstance(network, Packed):
            network = learner.network.packing.unpack(network)
        if isinstance(mixture, Packed):
            mixture = learner.mixture.packing.unpack(mixture)
        return EnsembleState(network, mixture)


def save_state(path: str | os.PathLike[str], learner: StateLearner, state: State, *, extra: dict[str, Any]) -> None:
    """Write a state to a file, as `save` does."""
    save(path, unpacked(learner, state), extra=extra)


def load_state(path: str | os.PathLike[str], learner: StateLearner) -> State:
    """Read a state back, packed; it may be donated to a step.

    Raises:
        CheckpointError: as for `load`.
    """
    return copy_state(packed(learner, load(path, learner)))
