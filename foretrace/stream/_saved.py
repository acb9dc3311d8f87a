"""The state of a stream: packed while it runs, and with each array by its name in checkpoints."""

import os
from typing import Any

from foretrace._runs.checkpoint import load, save
from foretrace.stream._ensemble import Ensemble
from foretrace.stream._intake import State
from foretrace.stream._learner import StreamLearner, copy_state
from foretrace.stream._member_learner import MemberLearner

StateLearner = StreamLearner | MemberLearner | Ensemble


def first_state(learner: StateLearner) -> State:
    """Return the state before the first row, packed: programs take and return it in less time."""
    return learner.packing.pack(learner.init())


def save_state(path: str | os.PathLike[str], learner: StateLearner, state: State, *, extra: dict[str, Any]) -> None:
    """Write a packed state to a file, as `save` does."""
    save(path, learner.packing.unpack(state), extra=extra)


def load_state(path: str | os.PathLike[str], learner: StateLearner) -> State:
    """Read a state back, packed; it may be donated to a step.

    Raises:
        CheckpointError: as for `load`.
    """
    return copy_state(learner.packing.pack(load(path, learner)))
