"""Help of the command line: plain names of types, defaults once, common options first."""

import dataclasses
import typing
from typing import Annotated, Any, Union

import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from foretrace._runs.options import ADVANCED


class HelpRegistry(ConstructorRegistry):
    """How tyro reads and shows the options of foretrace, inside `with`.

    Args:
        only_common: leave out options that are marked as advanced; then they cannot be parsed
            either.
    """

    def __init__(self, only_common: bool):
        super().__init__()
        self._only_common, self._inside = only_common, False
        self.primitive_rule(_optional)
        self.struct_rule(self._marked)

    def _marked(self, info: StructTypeInfo) -> StructConstructorSpec | None:
        """Mark the fields of a dataclass that tyro has read."""
        if self._inside or not dataclasses.is_dataclass(info.type):
            return None
        self._inside = True
        try:
            spec = ConstructorRegistry.get_struct_spec(info)
        finally:
            self._inside = False
        if not isinstance(spec, StructConstructorSpec):
            return None
        return dataclasses.replace(spec, fields=tuple(map(self._field, spec.fields)))

    def _field(self, field: StructFieldSpec) -> StructFieldSpec:
        kind, *marks = _parts(field.type)
        text = (field.helptext() if callable(field.helptext) else field.helptext) or ""
        if ADVANCED in marks and self._only_common:
            marks.append(tyro.conf.Suppress)
        if not _holds_dataclass(kind):
            marks.append(tyro.conf.arg(help_behavior_hint="" if "Default:" in text else _default))
        elif self._only_common and tyro.conf.AvoidSubcommands in marks:
            # The text of the field then takes the place of the type's docstring.
            kind = type(field.default)
        elif self._only_common and len(typing.get_args(kind)) > 1:
            kind = Union[tuple(map(_undescribed, typing.get_args(kind)))]  # noqa: UP007 - of a tuple
        marked: Any = Annotated[(kind, *marks)] if marks else kind
        # A line break that tyro leaves before a word such as `memory` is no end of a paragraph.
        return dataclasses.replace(field, type=marked, helptext=" ".join(text.split()) or None)


def _parts(kind: Any) -> tuple[Any, ...]:
    if typing.get_origin(kind) is not Annotated:
        return (kind,)
    kind, *marks = typing.get_args(kind)
    return (kind, *marks)


def _holds_dataclass(kind: Any) -> bool:
    members = typing.get_args(kind) or (kind,)
    return any(dataclasses.is_dataclass(_parts(member)[0]) for member in members)


def _undescribed(kind: Any) -> Any:
    """Let a dataclass among others be shown by its name alone."""
    return (
        Annotated[kind, tyro.conf.subcommand(description="")]
        if dataclasses.is_dataclass(kind)
        else kind
    )


def _default(label: str) -> str:
    """Return how a default is shown: not at all if the text has to explain it."""
    return "" if label in ("", "None", "False") else f"Default: {label}."


def _optional(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """Read `X | None` as X or None, and show it as X."""
    members = typing.get_args(info.type)
    if len(members) != 2 or type(None) not in members:
        return None
    inner: Any = members[0] if members[1] is type(None) else members[1]
    spec = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(inner, info.markers))
    if not isinstance(spec, PrimitiveConstructorSpec):
        return None

    def read(words: list[str]) -> Any:
        if words == ["None"]:
            return None
        if isinstance(spec.nargs, int) and len(words) != spec.nargs:
            raise ValueError(f"expected {spec.nargs} values or None, got {len(words)}")
        return spec.instance_from_str(words)

    return PrimitiveConstructorSpec(
        nargs=1 if spec.nargs == 1 else "*",
        metavar=spec.metavar,
        instance_from_str=read,
        is_instance=lambda value: value is None or spec.is_instance(value),
        str_from_instance=lambda value: (
            ["None"] if value is None else spec.str_from_instance(value)
        ),
        choices=None if spec.choices is None else (*spec.choices, "None"),
    )
