"""The state of a stream as checkpoints hold it: with the mixture's arrays by their names, not packed."""

import os
from typing import Any

import jax

from foretrace._runs.checkpoint import load, save
from foretrace.stream._ensemble import Ensemble, EnsembleState
from foretrace.stream._intake import State
from foretrace.stream._learner import StreamLearner, copy_state
from foretrace.stream._member_learner import MemberLearner


def save_state(
    path: str | os.PathLike[str],
    learner: StreamLearner | MemberLearner | Ensemble,
    state: State,
    *,
    extra: dict[str, Any],
) -> None:
    """Write a state to a file, as `save` does."""
    save(path, _unpacked(learner, state), extra=extra)


def load_state(path: str | os.PathLike[str], learner: StreamLearner | MemberLearner | Ensemble) -> State:
    """Read a state back that may be donated to a step.

    Raises:
        CheckpointError: as for `load`.
    """
    state = load(path, _Saved(learner))
    if isinstance(learner, Ensemble):
        with jax.enable_x64(True):
            state = state._replace(mixture=learner.mixture.packing.pack(state.mixture))
    return copy_state(state)


class _Saved:
    """What a checkpoint belongs to.

    Args:
        learner: learner of its state.
    """

    def __init__(self, learner: StreamLearner | MemberLearner | Ensemble):
        self.learner = learner

    def init(self) -> Any:
        """Return a state as it is saved."""
        return _unpacked(self.learner, self.learner.init())


def _unpacked(learner: StreamLearner | MemberLearner | Ensemble, state: State) -> Any:
    if not isinstance(state, EnsembleState) or not isinstance(learner, Ensemble):
        return state
    with jax.enable_x64(True):
        return state._replace(mixture=learner.mixture.packing.unpack(state.mixture))
