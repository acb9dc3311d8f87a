"""Conditions at the fields of a configuration: options without effect, which a run names.

    depth: Annotated[int | None, NETWORK] = None

An option that is given without effect is named once, with its first condition that is not met.
"""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

from foretrace._rows.schema import Kind


class Known(NamedTuple):
    """Values known with the kind of the target, which conditions read.

    Args:
        experts: names of the used experts.
        cell: name of the network's cell.
        cell_options: names of the options that this cell has.
        classes: whether classes are predicted.
        members: whether a column or feature names the member of a row.
        format: format of the source; empty where there is none.
        kinds: kinds of the input columns.
    """

    experts: Sequence[str]
    cell: str
    cell_options: Collection[str]
    classes: bool
    members: bool = False
    format: str = ""
    kinds: Collection[Kind | None] = ()


@dataclasses.dataclass(frozen=True)
class Needs:
    """Condition of an option.

    Args:
        met: whether a value of the option has an effect.
        reason: reason for which it has none, and what to do; `{cell}` stands for the field of
            `Known`.
        part: part of the option that the condition is about. Default: all of it.
    """

    met: Callable[[Known, Any], bool]
    reason: str
    part: str = ""


class NoEffect(NamedTuple):
    """Options that do nothing, and the reason."""

    names: list[str]
    reason: str

    def __str__(self) -> str:
        """Return a line that names the options as in Python."""
        return self._line("", "_")

    def on_command_line(self) -> str:
        """Return a line that names the options as on the command line."""
        return self._line("--", "-")

    def _line(self, before: str, between: str) -> str:
        shown = ", ".join(before + name.replace("_", between) for name in self.names)
        return f"{shown} {'has' if len(self.names) == 1 else 'have'} no effect: {self.reason}"


def conditions(kind: type) -> dict[str, list[Needs]]:
    """Return the conditions of each field of a configuration.

    >>> from foretrace.stream._model_config import ModelConfig
    >>> [name for name, needs in conditions(ModelConfig).items() if len(needs) > 1]
    ['experts', 'state_size']
    """
    hints = get_type_hints(kind, include_extras=True)
    return {name: _needs(hint) for name, hint in hints.items()}


def _needs(hint: Any) -> list[Needs]:
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    return [mark for mark in marks if isinstance(mark, Needs)]


def without_effect(known: Known, options: Mapping[type, Mapping[str, Any]]) -> list[NoEffect]:
    """Return the given options without effect, grouped by reason.

    Args:
        known: values that the conditions read.
        options: values of options by their name, for each configuration that has them as fields.
    """
    found: dict[str, list[str]] = {}
    for kind, values in options.items():
        needs = conditions(kind)
        for field in dataclasses.fields(kind):
            if field.name not in values or (value := values[field.name]) == field.default:
                continue
            unmet = next((one for one in needs[field.name] if not one.met(known, value)), None)
            if unmet is not None:
                reason = unmet.reason.format(**known._asdict())
                found.setdefault(reason, []).append(f"{field.name} {unmet.part}".strip())
    return [NoEffect(names, reason) for reason, names in found.items()]
