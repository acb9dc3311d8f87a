"""The paper's experiments as data: runs, entries of tables and figures, and the paper's results.

    _copy.py        common parts of the experiments on the copy task
    figure2.py      Figure 2: depth (A, B), initial eigenvalues (C, D), approximations (E, F)
    table1.py       Table 1: recurrent layers and rules on the copy task
    tables2_3.py    Table 2: sequential CIFAR-10, IMDB, ListOps; Table 3: a linear RNN

Each experiment has several scales. `smoke` runs three entries of `cpu` with tiny sizes, as a test.
`cpu` takes about an hour on two cores, and its note says how it is reduced. `long` (Tables 2 and 3)
has sequences of the paper's length. `paper` is the whole experiment. Where the paper's text and the
authors' published runs differ, the settings follow the runs, which produced the paper's results.

Source: Zucchet et al., Online learning of long-range dependencies, NeurIPS 2023.
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal, Self

from foretrace.experiment._config import Config

Scale = Literal["smoke", "cpu", "long", "paper"]
RULES = ("online", "bptt", "truncated", "spatial")
"""Rules of the paper's tables."""
WITHIN_CHUNKS = "errors go through time within a chunk"
"""Note of the entries under HYBRID."""
SEARCH_SEED = 1000
"""Seed of the runs that choose a learning rate."""
REST = "the rest without"
"""Note of the entries in which only some parameters have a credit depth."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One entry of a table, or one curve of a figure.

    Args:
        row: row of the table, or property that distinguishes the curve.
        column: column of the table, or panel of the figure.
        config: configuration of the runs, except for seed and learning rate.
        published: result in the paper; None if there is none.
        rates: learning rates to choose from.
        note: remark in the table, such as "corrected".
    """

    row: str
    column: str
    config: Config
    published: float | None = None
    rates: tuple[float, ...] = (1e-3,)
    note: str = ""

    @property
    def name(self) -> str:
        """Name of the entry, made of its row and column."""
        return f"{self.row}, {self.column}"


@dataclasses.dataclass(frozen=True)
class Experiment:
    """A table or a figure.

    Args:
        name: name on the command line.
        title: title of the table or figure.
        scale: size of the runs.
        entries: entries of the table, most important first.
        metric: score that the paper reports, "training_loss" or "accuracy".
        seeds: seeds of the reported runs.
        search_share: length of a search run, as a fraction of a reported run.
        note: differences from the paper's experiment.
    """

    name: str
    title: str
    scale: Scale
    entries: tuple[Entry, ...]
    metric: Literal["training_loss", "accuracy"]
    seeds: tuple[int, ...]
    search_share: float = 1.0
    note: str = ""

    @property
    def selected_by(self) -> Literal["loss", "accuracy"]:
        """Validation score that selects a learning rate: largest accuracy or smallest loss."""
        return "accuracy" if self.metric == "accuracy" else "loss"

    def chosen(self, only: Sequence[str]) -> list[Entry]:
        """Return the entries whose names contain one of the texts, or all entries without texts.

        Raises:
            ValueError: no entry matches.
        """
        found = [e for e in self.entries if not only or any(text in e.name for text in only)]
        if not found:
            names = "; ".join(entry.name for entry in self.entries)
            raise ValueError(
                f"no entry of {self.name} contains {', '.join(only)}; there are: {names}"
            )
        return found

    def with_rates(self, rates: tuple[float, ...]) -> Self:
        """Return the experiment with other learning rates to choose from.

        Raises:
            ValueError: no rates are given, or a rate is negative.
        """
        if not rates or min(rates) < 0:
            raise ValueError(f"rates={rates}: at least one is needed, and none may be negative")
        entries = tuple(dataclasses.replace(entry, rates=rates) for entry in self.entries)
        return dataclasses.replace(self, entries=entries)
