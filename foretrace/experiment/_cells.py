"""The recurrent layers that the command line offers: the options of each are the arguments of its constructor."""

import dataclasses
import inspect
import typing
from typing import Annotated, Any, ClassVar, Literal

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
    rotation,
    rtu,
    s5,
    selective_ssm,
    set_reset,
)
from foretrace._cells.abstract import AbstractCell
from foretrace._runs.config_json import check_types
from foretrace._runs.options import ADVANCED
from foretrace._types import PRNGKeyArray

STATE_SIZE = 64
"""Number of modules of a layer whose constructor has no default."""


class MakeCell(typing.Protocol):
    """What `AbstractCell.factory` returns."""

    def __call__(self, input_size: int, *, key: PRNGKeyArray) -> AbstractCell:
        """Return a cell for a network of that model size."""


@dataclasses.dataclass(frozen=True, init=False)
class AbstractCellConfig:
    """Options of a recurrent layer."""

    cell: ClassVar[type[AbstractCell]]

    def __init__(self, *args: Any, **options: Any):
        raise NotImplementedError

    def __post_init__(self) -> None:
        check_types(self)

    def factory(self) -> MakeCell:
        """Return what makes the cell."""
        return self.cell.factory(**vars(self))


def _config_of(cell: type[AbstractCell]) -> type[AbstractCellConfig]:
    """Return a dataclass with the options of a cell's constructor; its docstring is the help on the command line."""
    hints = typing.get_type_hints(cell.__init__)
    fields: list[Any] = []
    for option in inspect.signature(cell).parameters.values():
        if option.name not in ("input_size", "key"):
            default = STATE_SIZE if option.default is option.empty else option.default
            kind = hints[option.name]
            if option.name != "state_size":
                kind = Annotated[kind, ADVANCED]
            fields.append((option.name, kind, dataclasses.field(default=default)))
    own = {"cell": cell, "__module__": __name__, "__doc__": _help(cell)}
    return dataclasses.make_dataclass(cell.__name__, fields, bases=(AbstractCellConfig,), namespace=own, frozen=True)


def _help(cell: type[AbstractCell]) -> str:
    """Return the summary and the arguments of a cell's docstring."""
    summary, *sections = (inspect.getdoc(cell) or "").split("\n\n")
    return "\n\n".join([summary, *(section for section in sections if section.startswith("Args:"))])


LRU: type[AbstractCellConfig] = _config_of(lru.LRU)
LinearRNN: type[AbstractCellConfig] = _config_of(linear_rnn.LinearRNN)
GRU: type[AbstractCellConfig] = _config_of(gru.GRU)
ElementwiseLSTM: type[AbstractCellConfig] = _config_of(elementwise_lstm.ElementwiseLSTM)
MinGRU: type[AbstractCellConfig] = _config_of(min_gru.MinGRU)
MinLSTM: type[AbstractCellConfig] = _config_of(min_lstm.MinLSTM)
RGLRU: type[AbstractCellConfig] = _config_of(rg_lru.RGLRU)
S5: type[AbstractCellConfig] = _config_of(s5.S5)
SelectiveSSM: type[AbstractCellConfig] = _config_of(selective_ssm.SelectiveSSM)
RTU: type[AbstractCellConfig] = _config_of(rtu.RTU)
IndRNN: type[AbstractCellConfig] = _config_of(ind_rnn.IndRNN)
LIF: type[AbstractCellConfig] = _config_of(lif.LIF)
SetReset: type[AbstractCellConfig] = _config_of(set_reset.SetReset)
Rotation: type[AbstractCellConfig] = _config_of(rotation.Rotation)
CELLS = (
    LRU,
    LinearRNN,
    GRU,
    ElementwiseLSTM,
    MinGRU,
    MinLSTM,
    RGLRU,
    S5,
    SelectiveSSM,
    RTU,
    IndRNN,
    LIF,
    SetReset,
    Rotation,
)

CellName = Literal[
    "lru",
    "linear-rnn",
    "gru",
    "elementwise-lstm",
    "min-gru",
    "min-lstm",
    "rglru",
    "s5",
    "selective-ssm",
    "rtu",
    "ind-rnn",
    "lif",
    "set-reset",
    "rotation",
]

BY_NAME: dict[CellName, type[AbstractCellConfig]] = dict(zip(typing.get_args(CellName), CELLS, strict=True))
"""The recurrent layers by the names that the command line gives them."""


if typing.TYPE_CHECKING:
    CellConfig = AbstractCellConfig
else:
    CellConfig = typing.Union[CELLS]  # noqa: UP007 - of a tuple
