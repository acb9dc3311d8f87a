"""The experiments of the paper by name."""

from typing import Any, Literal, get_args

from foretrace.paper import figure2, table1, tables2_3
from foretrace.paper._experiment import Experiment, Scale

Name = Literal["figure2ab", "figure2cd", "figure2ef", "table1", "table2", "table3"]
NAMES: tuple[Name, ...] = get_args(Name)
_MODULES: dict[str, Any] = dict(zip(NAMES, [figure2] * 3 + [table1] + [tables2_3] * 2, strict=True))


def load(name: str, scale: Scale = "cpu") -> Experiment:
    """Return an experiment by its name on the command line.

    Raises:
        ValueError: no such experiment, or not at this scale: `long` is for sequences of the paper's
            length on real tasks (Tables 2 and 3); the sequences of the copy task have their full
            length at every scale.

    >>> load("table1", "paper").entries[0].published
    0.00844
    """
    if name not in NAMES:
        raise ValueError(f"no experiment {name!r}; there are {', '.join(NAMES)}")
    if scale not in scales(name):
        raise ValueError(f"no scale {scale!r} of {name}; there are {', '.join(scales(name))}")
    return _MODULES[name].experiment(name, scale)


def scales(name: str) -> tuple[Scale, ...]:
    """Return the scales of an experiment.

    >>> scales("table1")
    ('smoke', 'cpu', 'paper')
    """
    return tuple(_MODULES[name].SCALES)
