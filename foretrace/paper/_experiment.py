"""The paper's experiments as data: runs, cells of tables and figures, and the paper's numbers.

    figure2.py      Figure 2: depth (A, B), initial eigenvalues (C, D), approximations (E, F)
    table1.py       Table 1: recurrent layers and rules on the copy task
    tables2_3.py    Table 2: sequential CIFAR-10, IMDB, ListOps; Table 3: a linear RNN

Each experiment comes in scales: `smoke` (seconds, to see that all works), `cpu` (about an hour on
two cores, reduced as its note says) and `paper`. Where the paper's text and the authors' published
runs differ, the settings follow the runs, which produced the numbers.

Source: Zucchet et al., Online learning of long-range dependencies, NeurIPS 2023.
"""

import dataclasses
import os
from typing import Any, Literal, NamedTuple, Self, get_args

from foretrace.experiment._cells import LRU, LinearRNN
from foretrace.experiment._config import Config, NetworkConfig

Scale = Literal["smoke", "cpu", "long", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
WITHIN_CHUNKS = "errors go through time within a chunk"
"""Note of the cells of HYBRID."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One cell of a table or one curve of a figure.

    Args:
        row: row of the table, or what distinguishes the curve.
        column: column of the table, or panel of the figure.
        config: configuration of the runs, but for seed and learning rate.
        published: number in the paper; None where it has none.
        rates: learning rates to choose from.
        note: remark for the table, such as "corrected".
    """

    row: str
    column: str
    config: Config
    published: float | None = None
    rates: tuple[float, ...] = (1e-3,)
    note: str = ""

    @property
    def name(self) -> str:
        """Row and column."""
        return f"{self.row}, {self.column}"


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A table or a figure.

    Args:
        name: name on the command line.
        title: title of the table or figure.
        scale: size of the runs.
        entries: cells of the table, most valuable first.
        metric: score that the paper reports: "training_loss", "loss" or "accuracy".
        seeds: seeds of the reported runs.
        search_seed: seed of the search for the learning rate.
        search_share: length of a run of the search, as a share of the whole run.
        best: whether to report the network with the best validation score instead of the last one.
        note: differences from the paper's experiment.
    """

    name: str
    title: str
    scale: Scale
    entries: tuple[Entry, ...]
    metric: Literal["training_loss", "loss", "accuracy"]
    seeds: tuple[int, ...]
    search_seed: int = 1000
    search_share: float = 1.0
    best: bool = False
    note: str = ""

    @property
    def selected_by(self) -> Literal["loss", "accuracy"]:
        """Validation score that selects a learning rate: larger accuracy, or smaller loss."""
        return "accuracy" if self.metric == "accuracy" else "loss"

    def with_options(
        self, rates: tuple[float, ...] | None, data_dir: str | os.PathLike[str] | None
    ) -> Self:
        """Return the experiment with other learning rates to choose from, or other data.

        Raises:
            ValueError: no rates, or a negative one.
        """
        if rates is not None and (not rates or min(rates) < 0):
            raise ValueError(f"rates={rates}: at least one is needed, and none may be negative")
        return dataclasses.replace(
            self, entries=tuple(_changed(entry, rates, data_dir) for entry in self.entries)
        )


class CopySize(NamedTuple):
    """Sizes of the runs of an experiment on the copy task.

    Args:
        samples: number of training sequences.
        epochs: number of times that a run goes through them.
        batch: number of sequences of a batch.
        seeds: seeds of the reported runs.
        rates: learning rates to choose from.
        search_share: length of a run of the search, as a share of a whole run.
    """

    samples: int
    epochs: int
    batch: int
    seeds: tuple[int, ...]
    rates: tuple[float, ...]
    search_share: float


def at_scale(network: NetworkConfig, scale: Scale) -> NetworkConfig:
    """Return the network, or a tiny one of the same kind at the scale `smoke`."""
    if scale != "smoke":
        return network
    small: dict[str, Any] = {"state_size": 8} if isinstance(network.cell, LRU | LinearRNN) else {}
    cell = dataclasses.replace(network.cell, **small)
    readout = None if network.readout_size is None else 16
    return dataclasses.replace(network, model_size=12, cell=cell, readout_size=readout)


def _changed(
    entry: Entry, rates: tuple[float, ...] | None, data_dir: str | os.PathLike[str] | None
) -> Entry:
    config = entry.config
    if data_dir is not None:
        config = dataclasses.replace(config, task=config.task.with_data_dir(str(data_dir)))
    return dataclasses.replace(entry, config=config, rates=entry.rates if rates is None else rates)
