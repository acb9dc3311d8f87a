"""The recurrent layers that the command line offers: one typed dataclass each, its docstring the help."""

import dataclasses
import typing
from typing import Any

from foretrace._cells import (
    elementwise_lstm,
    gru,
    ind_rnn,
    lif,
    linear_rnn,
    lru,
    min_gru,
    min_lstm,
    rg_lru,
    rtu,
    s5,
    selective_ssm,
)
from foretrace._cells.abstract import AbstractCell
from foretrace._types import PRNGKeyArray


class MakeCell(typing.Protocol):
    """What `AbstractCell.factory` returns."""

    def __call__(self, input_size: int, *, key: PRNGKeyArray) -> AbstractCell:
        """Return a cell for a network of that model size."""


@dataclasses.dataclass(frozen=True)
class LRU:
    """Linear recurrent unit: independent modules, for which the online rule is exact within a layer.

    Args:
        state_size: number of modules.
        r_min: inner radius of the ring that the eigenvalues are drawn from.
        r_max: outer radius.
        timescales: shortest and longest time constant in steps, in place of the ring; those of the modules are
            log-uniform between them.
    """

    state_size: int = 64
    r_min: float = 0.0
    r_max: float = 1.0
    timescales: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        _as_tuple(self)

    def factory(self) -> MakeCell:
        """Return what makes the cell."""
        return lru.LRU.factory(**vars(self))


@dataclasses.dataclass(frozen=True)
class LinearRNN:
    """Densely connected recurrence, linear or with a tanh.

    Args:
        state_size: number of units.
        tanh: apply a tanh to the state.
    """

    state_size: int = 64
    tanh: bool = False

    def factory(self) -> MakeCell:
        """Return what makes the cell."""
        return linear_rnn.LinearRNN.factory(**vars(self))


@dataclasses.dataclass(frozen=True)
class GRU:
    """Gated recurrent unit with as many units as the model has features."""

    def factory(self) -> MakeCell:
        """Return what makes the cell."""
        return gru.GRU.factory()


@dataclasses.dataclass(frozen=True)
class ElementwiseLSTM:
    """LSTM of independent modules, as many as the model has features."""

    def factory(self) -> MakeCell:
        """Return what makes the cell."""
        return elementwise_lstm.ElementwiseLSTM.factory()


@dataclasses.dataclass(frozen=True)
class MinGRU:
    """Minimal GRU: gate and candidate see the input alone; as many independent modules as features.

    Args:
        timescales: shortest and longest time constant in steps at zero input; log-uniform between them.
    """

    timescales: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        _as_tuple(self)

    def factory(self) -> MakeCell:
        """Return what makes the cell."""
        return min_gru.MinGRU.factory(**vars(self))


@dataclasses.dataclass(frozen=True)
class MinLSTM:
    """Minimal LSTM: its gates see the input alone; as many independent modules as features."""

    def factory(self) -> MakeCell:
        """Return what makes the cell."""
        return min_lstm.MinLSTM.factory()


@dataclasses.dataclass(frozen=True)
class RGLRU:
    """Real-gated linear recurrent unit; as many independent modules as features.

    Args:
        a_min: least decay that open gates begin with.
        a_max: largest.
    """

    a_min: float = 0.9
    a_max: float = 0.999

    def factory(self) -> MakeCell:
        """Return what makes the cell."""
        return rg_lru.RGLRU.factory(**vars(self))


@dataclasses.dataclass(frozen=True)
class S5:
    """Diagonal state space model with a zero-order hold and learned steps.

    Args:
        state_size: number of modules.
        timescales: shortest and longest time constant in steps; log-uniform between them.
    """

    state_size: int = 64
    timescales: tuple[float, float] = (20.0, 2000.0)

    def __post_init__(self) -> None:
        _as_tuple(self)

    def factory(self) -> MakeCell:
        """Return what makes the cell."""
        return s5.S5.factory(**vars(self))


@dataclasses.dataclass(frozen=True)
class SelectiveSSM:
    """Selective state space model as in Mamba: steps and weights depend on the input.

    Args:
        states_per_channel: numbers of state of each feature.
    """

    states_per_channel: int = 16

    def factory(self) -> MakeCell:
        """Return what makes the cell."""
        return selective_ssm.SelectiveSSM.factory(**vars(self))


@dataclasses.dataclass(frozen=True)
class RTU:
    """Recurrent trace unit: independent modules of two real numbers that turn and fade.

    Args:
        state_size: number of modules.
        tanh: apply a tanh to the state.
        timescales: shortest and longest time constant in steps; log-uniform between them. By default the decays are
            uniform in area on the unit disk.
    """

    state_size: int = 64
    tanh: bool = False
    timescales: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        _as_tuple(self)

    def factory(self) -> MakeCell:
        """Return what makes the cell."""
        return rtu.RTU.factory(**vars(self))


@dataclasses.dataclass(frozen=True)
class IndRNN:
    """Independently recurrent network: as many units as features, each with one weight on its own past.

    Args:
        tanh: tanh instead of the ReLU.
    """

    tanh: bool = False

    def factory(self) -> MakeCell:
        """Return what makes the cell."""
        return ind_rnn.IndRNN.factory(**vars(self))


@dataclasses.dataclass(frozen=True)
class LIF:
    """Leaky integrate-and-fire units without connections among them, with a surrogate gradient; they put out spikes.

    Args:
        threshold: potential above which a unit spikes, and what a spike takes off it.
        dampening: height of the surrogate gradient, times the threshold.
        timescales: shortest and longest time constant of the leak in steps; log-uniform between them.
    """

    threshold: float = 1.0
    dampening: float = 0.3
    timescales: tuple[float, float] = (20.0, 20.0)

    def __post_init__(self) -> None:
        _as_tuple(self)

    def factory(self) -> MakeCell:
        """Return what makes the cell."""
        return lif.LIF.factory(**vars(self))


CellConfig = LRU | LinearRNN | GRU | ElementwiseLSTM | MinGRU | MinLSTM | RGLRU | S5 | SelectiveSSM | RTU | IndRNN | LIF


CELLS: tuple[type, ...] = typing.get_args(CellConfig)


def _as_tuple(config: Any) -> None:
    """Make `timescales` a tuple again: JSON has lists.

    Raises:
        ValueError: it is no pair.
    """
    if config.timescales is None:
        return
    if not isinstance(config.timescales, tuple | list) or len(config.timescales) != 2:
        name = type(config).__name__
        raise ValueError(
            f"{name}(timescales={config.timescales!r}) must be a pair of steps, such as (1, 1000), or None"
        )
    object.__setattr__(config, "timescales", tuple(config.timescales))
