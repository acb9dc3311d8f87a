"""Context of a number: guessing, test data, the search, the tree it came from."""

import math
from collections.abc import Sequence
from typing import Any

from foretrace.experiment._config import Config
from foretrace.paper._experiment import Entry, Experiment
from foretrace.tasks.copy import Copy
from foretrace.tasks.images import SequentialCIFAR10
from foretrace.tasks.imdb import IMDB
from foretrace.tasks.listops import ListOps

GUESSING: dict[type, tuple[float, float]] = {
    Copy: (math.log(2), 0.5),
    SequentialCIFAR10: (math.log(10), 0.1),
    IMDB: (math.log(2), 0.5),
    ListOps: (math.log(10), 0.172),
}
"""Loss, in nats, and accuracy of one constant answer; ListOps' most common value has 17.2 %."""

TEST_SEQUENCES: dict[type, int] = {SequentialCIFAR10: 10_000, IMDB: 25_000}
"""Size of the published test sets."""


def beats_guessing(experiment: Experiment, task: Any, value: float) -> bool:
    """Return whether a loss, or an accuracy's error, is below half of guessing's."""
    loss, accuracy = GUESSING[type(task)]
    return 1 - value < (1 - accuracy) / 2 if experiment.metric == "accuracy" else value < loss / 2


def gradient_mode(config: Config) -> str:
    """Return how the gradient was computed: on the whole sequence, or chunk by chunk."""
    return "whole sequences" if config.chunk is None else f"streamed in chunks of {config.chunk}"


def modified(record: dict[str, Any]) -> bool:
    """Return whether a run came from a tree with changes that were not committed."""
    return (record["surroundings"].get("commit") or "").endswith("-dirty")


def searches(cells: Sequence[tuple[Entry, list[dict[str, Any]]]]) -> str:
    """Describe how learning rates were chosen: the rates, the length of runs, the entries.

    Args:
        cells: entries, each with the records of its search.
    """
    tried: dict[tuple, list[str]] = {}
    columns = {entry.column for entry, records in cells if records}
    for entry, records in cells:
        if records:
            rates = tuple(sorted({record["rate"] for record in records}))
            steps = f"{records[0]['step']:,} of {entry.config.steps:,}"
            tried.setdefault((rates, steps), []).append(
                entry.row if len(columns) == 1 else entry.name
            )
    sentences = []
    for (rates, steps), names in tried.items():
        among = ", ".join(f"{rate:g}" for rate in rates)
        whom = "" if len(tried) == 1 else f" ({'; '.join(names)})"
        sentences.append(f"among {among} by runs of {steps} steps with one seed{whom}")
    return (
        f"Learning rates were chosen on validation sequences {'; '.join(sentences)}."
        if sentences
        else ""
    )


def about_test_data(experiment: Experiment, entries: Sequence[Entry]) -> str:
    """Say on how many test sequences an accuracy was measured, and its largest standard error."""
    if experiment.metric != "accuracy":
        return ""
    parts = []
    for column in dict.fromkeys(entry.column for entry in entries):
        config = next(entry.config for entry in entries if entry.column == column)
        everything = (
            config.task.held_out
            if isinstance(config.task, ListOps)
            else TEST_SEQUENCES[type(config.task)]
        )
        number = min(config.final_sequences, everything)
        share = f"all {number:,}" if number == everything else f"{number:,} of {everything:,}"
        parts.append(f"{column} {share} (at most {50 / math.sqrt(number):.1f} points)")
    return f"Test sequences, with the standard error of an accuracy: {', '.join(parts)}."
