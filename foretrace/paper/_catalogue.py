"""The experiments of the paper, by name."""

import dataclasses
import math
from typing import Any, Literal, get_args

from foretrace.experiment._config import Config
from foretrace.paper import figure2, table1, tables2_3
from foretrace.paper._experiment import Experiment, Scale

Name = Literal["figure2ab", "figure2cd", "figure2ef", "table1", "table2", "table3"]
NAMES: tuple[Name, ...] = get_args(Name)
_MODULES: dict[str, Any] = dict(zip(NAMES, [figure2] * 3 + [table1] + [tables2_3] * 2, strict=True))


def load(name: str, scale: Scale = "cpu") -> Experiment:
    """Return an experiment by its name on the command line.

    Raises:
        ValueError: there is no such experiment, or it does not have this scale. The scale `long`
            has sequences of the paper's length on the real tasks (Tables 2 and 3). The copy task
            has its full length at every scale.

    >>> load("table1", "paper").entries[0].published
    0.00844
    """
    if name not in NAMES:
        raise ValueError(f"no experiment {name!r}; there are {', '.join(NAMES)}")
    if scale not in scales(name):
        raise ValueError(f"no scale {scale!r} of {name}; there are {', '.join(scales(name))}")
    if scale == "smoke":
        return _tiny(load(name))
    return _MODULES[name].experiment(name, scale)


def scales(name: str) -> tuple[Scale, ...]:
    """Return the scales of an experiment.

    >>> scales("table1")
    ('smoke', 'cpu', 'paper')
    """
    return ("smoke", *_MODULES[name].SCALES)


def _tiny(whole: Experiment) -> Experiment:
    """Return three entries of an experiment with tiny sizes, for short test runs."""
    chosen = whole.entries[:: math.ceil(len(whole.entries) / 3)]
    entries = tuple(
        dataclasses.replace(entry, config=_shrunk(entry.config), rates=entry.rates[:2])
        for entry in chosen
    )
    note = "Three entries, 2 epochs of 20 samples, narrow networks: shows that it runs, no more."
    return dataclasses.replace(whole, scale="smoke", entries=entries, search_share=1.0, note=note)


def _shrunk(config: Config) -> Config:
    task: Any = config.task
    return dataclasses.replace(
        config,
        task=dataclasses.replace(task, samples=20),
        network=dataclasses.replace(config.network, model_size=12),
        optimizer=dataclasses.replace(config.optimizer, warmup_steps=0),
        steps=4,
        batch_size=10,
        evaluate_every=2,
        align_every=config.align_every and 2,
        validation_sequences=20,
        final_sequences=20,
    )
