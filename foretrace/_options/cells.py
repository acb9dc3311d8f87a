"""Recurrent layers of the command line, whose options are the constructors' arguments."""

import dataclasses
import inspect
import re
import typing
from typing import Annotated, Any, ClassVar, Literal

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    StructConstructorSpec,
    StructFieldSpec,
)

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
"""Options of the recurrent layers by cell name; each class is a name of this module, too."""

BY_NAME = {command_name(cell): CONFIGS[name] for name, cell in CELLS.items()}
"""The same by the names that the command line gives them."""


OPTIONS: dict[str, tuple[Any, list[str]]] = {}
"""Options of all cells: type, and the cells that have the option."""
for _name, _config in BY_NAME.items():
    for _field in dataclasses.fields(_config):
        OPTIONS.setdefault(_field.name, (_field.type, []))[1].append(_name)

FLAT = ConstructorRegistry()
"""Rules of the command line: a cell is its name, followed by the options of all cells."""


class _Absent:
    """Marker of an option that is not given, because None is a value of some options."""


_ABSENT = _Absent()


def _or_none(kind: Any) -> Any:
    """Return a type that tells None from an option that is not given."""
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
    """Return what an option does, the cells that have it, and its default for each."""
    about, cells_of = "", dict[str, list[str]]()
    for name in OPTIONS[option][1]:
        kind = BY_NAME[name]
        text = inspect.getdoc(kind.cell) or ""
        found = re.search(rf"^    {option}: (.*?)(?=^    \w|\n\n|\Z)", text, re.M | re.DOTALL)
        said, _, unset = " ".join(found[1].split() if found else ()).partition(" Default: ")
        about = about or said.partition(". ")[0].rstrip(".")
        value = getattr(present if type(present) is kind else kind(), option)
        words = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        words = re.split(r"[.;:,](?= |$)", unset)[0] if value is None else words
        cells_of.setdefault(words, []).append(name)
    several = len(cells_of) > 1
    defaults = (f"{one} for {', '.join(of)}" if several else one for one, of in cells_of.items())
    return f"{about}; for {', '.join(OPTIONS[option][1])}. Default: {'; '.join(defaults)}."


@FLAT.struct_rule
def _as_options(info: Any) -> StructConstructorSpec | None:
    if not (isinstance(info.type, type) and issubclass(info.type, AbstractCellConfig)):
        return None

    def made(cell: str, **options: Any) -> AbstractCellConfig:
        given = {name: value for name, value in options.items() if value is not _ABSENT}
        kind = BY_NAME[cell]
        if foreign := given.keys() - kind.__dataclass_fields__.keys():
            raise ValueError(
                f"{min(foreign)} is no option of the cell {cell}, whose options are "
                f"{', '.join(kind.__dataclass_fields__)}"
            )
        # The options of a default, such as those of a task, are for its own cell.
        return dataclasses.replace(info.default if kind is type(info.default) else kind(), **given)

    def field(name: str, kind: Any, default: Any, text: str) -> StructFieldSpec:
        short = f"--{name.replace('_', '-')}"
        kind = Annotated[kind, tyro.conf.arg(aliases=(short,))]
        return StructFieldSpec(name, kind, default, text)

    return StructConstructorSpec(
        made,
        (
            field("cell", CellName, command_name(info.default.cell), "recurrent layer of a block."),
            *(
                field(name, _or_none(kind), _ABSENT, _described(name, info.default))
                for name, (kind, _) in OPTIONS.items()
            ),
        ),
    )


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
