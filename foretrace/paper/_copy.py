"""Common parts of the experiments on the copy task: Figure 2 and Table 1."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from foretrace._options.cells import LRU, LinearRNN
from foretrace._options.network import NetworkConfig
from foretrace.experiment._config import Config, OptimizerConfig
from foretrace.paper._experiment import Entry, Experiment, Scale
from foretrace.tasks.copy import Copy


class CopySize(NamedTuple):
    """Sizes of the runs of an experiment on the copy task.

    Args:
        samples: number of training sequences.
        epochs: number of times that a run goes through them.
        batch: number of sequences of a batch.
        seeds: seeds of the reported runs.
        rates: learning rates to choose from.
        search_share: length of a run of the search, as a share of a whole run.
        note: differences from the paper's experiment.
    """

    samples: int
    epochs: int
    batch: int
    seeds: tuple[int, ...]
    rates: tuple[float, ...]
    search_share: float
    note: str

    def config(self, network: NetworkConfig, rule: str, **changes: Any) -> Config:
        """Return the configuration of a run."""
        epoch = self.samples // self.batch
        # The published runs had batches of 50 and half the rate for the recurrence, the text says
        # 20 and 1.
        common: dict[str, Any] = {
            "task": Copy(samples=self.samples),
            "optimizer": OptimizerConfig(recurrent_factor=0.5),
            "steps": self.epochs * epoch,
            "batch_size": self.batch,
            "evaluate_every": epoch,
            "align_every": None,
            "validation_sequences": 2 * self.batch,
            "final_sequences": min(20 * self.batch, self.samples // 2),
        }
        return Config(network=network, rule=rule, **common | changes)

    def experiment(
        self, name: str, title: str, scale: Scale, entries: Sequence[Entry]
    ) -> Experiment:
        """Return an experiment of this size, which reports the training loss."""
        return Experiment(
            name,
            title,
            scale,
            tuple(entries),
            metric="training_loss",
            seeds=self.seeds,
            search_share=self.search_share,
            note=self.note,
        )


def at_scale(network: NetworkConfig, scale: Scale) -> NetworkConfig:
    """Return the network, or a tiny one of the same kind at the scale `smoke`."""
    if scale != "smoke":
        return network
    small: dict[str, Any] = {"state_size": 8} if isinstance(network.cell, LRU | LinearRNN) else {}
    cell = dataclasses.replace(network.cell, **small)
    readout = None if network.readout_size is None else 16
    return dataclasses.replace(network, model_size=12, cell=cell, readout_size=readout)
