"""Recurrent layers on the command line, whose options are the constructors' arguments."""

import dataclasses
import inspect
import re
import typing
from typing import Annotated, Any, ClassVar

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    StructConstructorSpec,
    StructFieldSpec,
)

from foretrace._cells.abstract import AbstractCell
from foretrace._cells.beside import Beside as BesideCell
from foretrace._cells.registry import CELLS, command_name
from foretrace._runs.config_json import check_types
from foretrace._types import PRNGKeyArray

STATE_SIZE = 64
"""Number of modules of a layer whose constructor has no default."""


class MakeCell(typing.Protocol):
    """Type of the functions that `AbstractCell.factory` returns."""

    def __call__(self, input_size: int, *, key: PRNGKeyArray) -> AbstractCell:
        """Return a cell for a network with this model size."""


@dataclasses.dataclass(frozen=True, init=False)
class AbstractCellConfig:
    """Options of a recurrent layer."""

    cell: ClassVar[type[AbstractCell]]

    def __init__(self, *args: Any, **options: Any):
        raise NotImplementedError

    def __post_init__(self) -> None:
        check_types(self)

    @property
    def parts(self) -> "tuple[AbstractCellConfig, ...]":
        """The cells of a layer, which is most often a single cell."""
        return (self,)

    @property
    def name(self) -> str:
        """Name of the cell on the command line."""
        return "+".join(command_name(part.cell) for part in self.parts)

    @property
    def title(self) -> str:
        """Name of the cell in a report."""
        return "+".join(type(part).__name__ for part in self.parts)

    def factory(self) -> MakeCell:
        """Return the function that makes the cell."""
        return self.cell.factory(**vars(self))


def _config_of(cell: type[AbstractCell]) -> type[AbstractCellConfig]:
    """Return a dataclass of a cell's options."""
    hints = typing.get_type_hints(cell.__init__)
    fields: list[Any] = []
    for option in inspect.signature(cell).parameters.values():
        if option.name not in ("input_size", "key"):
            default = STATE_SIZE if option.default is option.empty else option.default
            fields.append((option.name, hints[option.name], dataclasses.field(default=default)))
    own = {"cell": cell, "__module__": __name__}
    return dataclasses.make_dataclass(
        cell.__name__, fields, bases=(AbstractCellConfig,), namespace=own, frozen=True
    )


CONFIGS: dict[str, type[AbstractCellConfig]] = {
    name: _config_of(cell) for name, cell in CELLS.items()
}
"""Options of the recurrent layers, by cell name. Each class is also a name of this module."""

if typing.TYPE_CHECKING:
    OneCell = AbstractCellConfig
else:
    OneCell = typing.Union[tuple(CONFIGS.values())]  # noqa: UP007 - of a tuple


@dataclasses.dataclass(frozen=True)
class Beside(AbstractCellConfig):
    """Options of a layer with cells side by side.

    Args:
        cells: options of each cell.
    """

    cells: tuple[OneCell, ...]
    cell = BesideCell

    @property
    def parts(self) -> tuple[AbstractCellConfig, ...]:
        """The options of each cell."""
        return self.cells

    def factory(self) -> MakeCell:
        """Return the function that makes the layer."""
        return BesideCell.factory(*(cell.factory() for cell in self.cells))


BY_NAME = {command_name(cell): CONFIGS[name] for name, cell in CELLS.items()}
"""The same options, by the names on the command line."""


OPTIONS: dict[str, tuple[Any, list[str]]] = {}
"""Options of all cells: for each option, its type and the cells that have it."""
for _name, _config in BY_NAME.items():
    for _field in dataclasses.fields(_config):
        OPTIONS.setdefault(_field.name, (_field.type, []))[1].append(_name)

FLAT = ConstructorRegistry()
"""Rules for the command line: a cell is its name, followed by the options of all cells."""


class _Absent:
    """Marker of an option that was not given, because None is a value of some options."""


_ABSENT = _Absent()


def _or_none(kind: Any) -> Any:
    """Return a type in which None differs from an option that was not given."""
    members = typing.get_args(_Absent | kind)
    return typing.Union[tuple(member for member in members if member is not type(None))]  # noqa: UP007


@FLAT.primitive_rule
def _as_none(info: Any) -> PrimitiveConstructorSpec[Any] | None:
    if info.type is not _Absent:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="{None}",
        instance_from_str=lambda words: None,
        is_instance=lambda value: value is _ABSENT,
        str_from_instance=lambda value: ["None"],
        choices=("None",),
    )


def _described(option: str, present: AbstractCellConfig) -> str:
    """Return the description of an option, the cells that have it, and its default for each."""
    about, cells_of = "", dict[str, list[str]]()
    for name in OPTIONS[option][1]:
        kind = BY_NAME[name]
        text = inspect.getdoc(kind.cell) or ""
        found = re.search(rf"^    {option}: (.*?)(?=^    \w|\n\n|\Z)", text, re.M | re.DOTALL)
        said, _, unset = " ".join(found[1].split() if found else ()).partition(" Default: ")
        about = about or said.partition(". ")[0].rstrip(".")
        own = [part for part in present.parts if type(part) is kind]
        value = getattr(own[0] if own else kind(), option)
        words = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        words = re.split(r"[.;:,](?= |$)", unset)[0] if value is None else words
        cells_of.setdefault(words, []).append(name)
    several = len(cells_of) > 1
    defaults = (f"{one} for {', '.join(of)}" if several else one for one, of in cells_of.items())
    return f"{about}; for {', '.join(OPTIONS[option][1])}. Default: {'; '.join(defaults)}."


def cell_config(
    name: str, given: dict[str, Any], like: AbstractCellConfig | None = None
) -> AbstractCellConfig:
    """Return the options of a cell by its name.

    Args:
        name: name on the command line. `rtu+gru` means two cells side by side.
        given: options, each of which applies to all cells that have it.
        like: options of the same cell, whose values are the defaults. It is ignored for another
            cell.

    Raises:
        ValueError: there is no such cell, or the cell has no such option.
    """
    words = name.split("+")
    if not BY_NAME.keys() >= {*words}:
        raise ValueError(
            f"cell={name!r} must be one of {', '.join(BY_NAME)}, or several of them with a plus "
            "between them, such as rtu+gru"
        )
    kinds = [BY_NAME[word] for word in words]
    names = dict.fromkeys(field.name for kind in kinds for field in dataclasses.fields(kind))
    if foreign := given.keys() - names.keys():
        raise ValueError(
            f"{min(foreign)} is no option of the cell {name}, whose options are {', '.join(names)}"
        )
    if like and like.name == name:
        parts = [*like.parts]
    else:
        # Cells that are side by side have the same number of modules.
        given = {"state_size": STATE_SIZE} | given if len(kinds) > 1 else given
        parts = [kind() for kind in kinds]
    found = [
        dataclasses.replace(part, **{k: v for k, v in given.items() if k in vars(part)})
        for part in parts
    ]
    return found[0] if len(found) == 1 else Beside(tuple(found))


@FLAT.struct_rule
def _as_options(info: Any) -> StructConstructorSpec | None:
    if not (isinstance(info.type, type) and issubclass(info.type, AbstractCellConfig)):
        return None

    def made(cell: str, **options: Any) -> AbstractCellConfig:
        given = {name: value for name, value in options.items() if value is not _ABSENT}
        # Default options, for example those of a task, apply only to the default cell.
        return cell_config(cell, given, like=info.default)

    def field(name: str, kind: Any, default: Any, text: str) -> StructFieldSpec:
        short = f"--{name.replace('_', '-')}"
        kind = Annotated[kind, tyro.conf.arg(aliases=(short,))]
        return StructFieldSpec(name, kind, default, text)

    about = "recurrent layer of a block; rtu+gru are two cells side by side."
    return StructConstructorSpec(
        made,
        (
            field("cell", CellName, info.default.name, about),
            *(
                field(name, _or_none(kind), _ABSENT, _described(name, info.default))
                for name, (kind, _) in OPTIONS.items()
            ),
        ),
    )


def __getattr__(name: str) -> type[AbstractCellConfig]:
    """Return the options of a cell: `_cells.LRU` has the same arguments as `foretrace.LRU`."""
    if name in CONFIGS:
        return CONFIGS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


CellConfig = OneCell | Beside
CellName = Annotated[str, tyro.conf.arg(metavar=f"{{{','.join(BY_NAME)}}}")]
