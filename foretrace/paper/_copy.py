"""Common parts of the experiments on the copy task: Figure 2 and Table 1."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from foretrace._options.network import NetworkConfig
from foretrace.experiment._config import Config, OptimizerConfig
from foretrace.paper._experiment import Entry, Experiment, Scale
from foretrace.tasks.copy import Copy

SAMPLES, BATCH = 20_000, 50
"""Number of training sequences, which are drawn once, and number of sequences in a batch."""
EPOCH = SAMPLES // BATCH
HALVED = OptimizerConfig(recurrent_factor=0.5)


class CopySize(NamedTuple):
    """Sizes of the runs of an experiment on the copy task.

    Args:
        epochs: number of passes over the training sequences.
        seeds: seeds of the reported runs.
        rates: learning rates to choose from.
        search_share: length of a search run, as a fraction of a reported run.
        note: differences from the paper's experiment.
    """

    epochs: int
    seeds: tuple[int, ...]
    rates: tuple[float, ...]
    search_share: float
    note: str

    def config(self, network: NetworkConfig, rule: str, **changes: Any) -> Config:
        """Return the configuration of a run."""
        # The published runs had batches of 50 and half the learning rate for the recurrence. The
        # paper's text says 20 and the same rate.
        common: dict[str, Any] = {
            "task": Copy(samples=SAMPLES),
            "optimizer": HALVED,
            "steps": self.epochs * EPOCH,
            "batch_size": BATCH,
            "evaluate_every": EPOCH,
            "align_every": None,
            "validation_sequences": 2 * BATCH,
            "final_sequences": 20 * BATCH,
        }
        return Config(network=network, rule=rule, **common | changes)

    def experiment(
        self, name: str, title: str, scale: Scale, entries: Sequence[Entry]
    ) -> Experiment:
        """Return an experiment of this size that reports the training loss."""
        own = self.seeds, self.search_share, self.note
        return Experiment(name, title, scale, tuple(entries), "training_loss", *own)


def sizes(seeds: tuple[int, ...], note: str, rates: tuple[float, ...]) -> dict[Scale, CopySize]:
    """Return the sizes of an experiment at each scale.

    Args:
        seeds: seeds at the scale cpu.
        note: note at the scale cpu.
        rates: learning rates to choose from at the scale paper.
    """
    whole = "As in the paper: 20,000 samples drawn once, 25 epochs."
    return {
        "cpu": CopySize(4, seeds, (2e-3, 4e-3, 8e-3), 0.25, note),
        "paper": CopySize(25, (0, 1, 2, 3, 4), rates, 1.0, whole),
    }
