"""Recurrent layers of the command line, whose options are the constructors' arguments."""

import dataclasses
import inspect
import typing
from typing import Any, ClassVar, Literal

from foretrace._cells.abstract import AbstractCell
from foretrace._cells.registry import CELLS, command_name
from foretrace._runs.config_json import check_types
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
    """Return a dataclass of a cell's options; its docstring is the help on the command line."""
    hints = typing.get_type_hints(cell.__init__)
    fields: list[Any] = []
    for option in inspect.signature(cell).parameters.values():
        if option.name not in ("input_size", "key"):
            default = STATE_SIZE if option.default is option.empty else option.default
            fields.append((option.name, hints[option.name], dataclasses.field(default=default)))
    own = {"cell": cell, "__module__": __name__, "__doc__": _help(cell)}
    return dataclasses.make_dataclass(
        cell.__name__, fields, bases=(AbstractCellConfig,), namespace=own, frozen=True
    )


def _help(cell: type[AbstractCell]) -> str:
    """Return the summary and the arguments of a cell's docstring."""
    summary, *sections = (inspect.getdoc(cell) or "").split("\n\n")
    return "\n\n".join([summary, *(section for section in sections if section.startswith("Args:"))])


CONFIGS: dict[str, type[AbstractCellConfig]] = {
    name: _config_of(cell) for name, cell in CELLS.items()
}
"""Options of the recurrent layers by cell name; each class is a name of this module, too."""

BY_NAME = {command_name(cell): CONFIGS[name] for name, cell in CELLS.items()}
"""The same by the names that the command line gives them."""


def __getattr__(name: str) -> type[AbstractCellConfig]:
    """Return the options of a cell: `_cells.LRU` equal the arguments of `foretrace.LRU`."""
    if name in CONFIGS:
        return CONFIGS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if typing.TYPE_CHECKING:
    CellConfig = AbstractCellConfig
    CellName = str
else:
    CellConfig = typing.Union[tuple(CONFIGS.values())]  # noqa: UP007 - of a tuple
    CellName = Literal[tuple(BY_NAME)]
