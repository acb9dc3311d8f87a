"""What a sweep searches: options of `foretrace train`, each with some values or a range."""

import dataclasses
import difflib
import itertools
import math
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from foretrace.experiment._cells import CELLS
from foretrace.experiment._config import Config

Value = str | int | float
"""Of an option: a number drawn from a range, or a text as on the command line."""


class Choice(NamedTuple):
    """An option and the values that it may take, as texts of the command line."""

    option: str
    values: tuple[str, ...]


class Range(NamedTuple):
    """A number from `low` to `high`, both included.

    Args:
        option: which has it.
        low: the smallest.
        high: the largest.
        log: every order of magnitude is as likely.
        whole: without a fraction.
    """

    option: str
    low: float
    high: float
    log: bool = False
    whole: bool = False

    @property
    def values(self) -> tuple[Value, ...]:
        """The two ends."""
        return (int(self.low), int(self.high)) if self.whole else (self.low, self.high)


Dimension = Choice | Range


def grid(texts: Sequence[str], config: Config) -> tuple[Choice, ...]:
    """Read what `--grid` says.

    Raises:
        ValueError: an option or a value that there is not.

    >>> grid(["rule=online,bptt", "network.depth=1,2"], Config())
    (Choice(option='rule', values=('online', 'bptt')), Choice(option='network.depth', values=('1', '2')))
    """
    return tuple(_each("--grid", texts, config, _choice))


def search(texts: Sequence[str], config: Config) -> tuple[Dimension, ...]:
    """Read what `--search` says.

    Raises:
        ValueError: an option, a value or a range that there is not.

    >>> search(["optimizer.learning-rate=log:1e-4:1e-2", "network.depth=1:4"], Config())[1]
    Range(option='network.depth', low=1.0, high=4.0, log=False, whole=True)
    """
    return tuple(_each("--search", texts, config, _choice_or_range))


def combinations(dimensions: Sequence[Choice]) -> list[dict[str, str]]:
    """Return every combination of the values of a grid; the last option changes fastest.

    >>> combinations([Choice("rule", ("online", "bptt")), Choice("network.depth", ("1", "2"))])[1]
    {'rule': 'online', 'network.depth': '2'}
    """
    names = [dimension.option for dimension in dimensions]
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*(d.values for d in dimensions))]


def applied(config: Config, values: Mapping[str, Value]) -> Config:
    """Return a configuration with other values of some options.

    Raises:
        ValueError: an option that is none of this configuration's, or a value that it refuses.

    >>> applied(Config(), {"network.cell": "min-gru", "optimizer.clip": "None"}).network.cell
    MinGRU(timescales=None)
    """
    # A cell comes before its settings.
    for option in sorted(values, key=len):
        config = _replaced(config, option.replace("-", "_").split("."), values[option])
    return config


def _each(argument: str, texts: Sequence[str], config: Config, read: Callable[..., Any]) -> list[Any]:
    kinds, found = _options(config), list[Dimension]()
    for text in texts:
        option, equals, rest = text.partition("=")
        option = option.strip().removeprefix("--").replace("_", "-")
        try:
            if not equals:
                raise ValueError("expected OPTION=VALUES")
            if option not in kinds:
                raise ValueError(f"no option {option!r}{_near(option, list(kinds))}")
            if any(dimension.option == option for dimension in found):
                raise ValueError("this option is named twice")
            found.append(read(option, rest.strip(), kinds[option]))
        except ValueError as error:
            raise ValueError(f"{argument} {text}: {error}") from error
    return found


def _options(config: Any, place: str = "") -> dict[str, Any]:
    """Return the options of a configuration, named as on the command line, with their types."""
    found, kinds = {}, typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        name, value = place + field.name.replace("_", "-"), getattr(config, field.name)
        if not dataclasses.is_dataclass(value) or isinstance(value, CELLS):
            found[name] = kinds[field.name]
        if dataclasses.is_dataclass(value):
            found |= _options(value, name + ".")
    return found


def _near(option: str, options: Sequence[str]) -> str:
    # Who leaves out the first part of a name means those that end like it.
    near = [name for name in options if name.endswith(f".{option}")] or difflib.get_close_matches(option, options)
    return f"; perhaps {' or '.join(near)}" if near else "; `foretrace train --help` lists them"


def _choice(option: str, text: str, kind: Any) -> Choice:
    values = tuple(part.strip() for part in text.split(","))
    for value in values:
        if _is_range(value, kind):
            raise ValueError(f"{value} is a range, for --search; a grid needs values, such as 1,2")
    if len({repr(_read(value, kind)) for value in values}) < len(values):
        raise ValueError("the same value twice")
    return Choice(option, values)


def _choice_or_range(option: str, text: str, kind: Any) -> Dimension:
    if not _is_range(text, kind):
        return _choice(option, text, kind)
    log, *ends = [text.startswith("log:"), *text.removeprefix("log:").split(":")]
    if len(ends) != 2:
        raise ValueError("expected a range LOW:HIGH or log:LOW:HIGH")
    whole = float not in _kinds(kind)
    low, high = (_read(end, int if whole else float) for end in ends)
    if not low < high:
        raise ValueError("a range goes from a smaller to a larger number")
    if log and low <= 0:
        raise ValueError("a range over orders of magnitude begins above zero")
    return Range(option, float(low), float(high), bool(log), whole)


def _is_range(text: str, kind: Any) -> bool:
    return ":" in text and bool({int, float} & set(_kinds(kind)))


def _kinds(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union, None first for every text is a text, or the type itself."""
    members = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    return tuple(sorted(members, key=lambda one: one is not type(None)))


def _read(text: str, kind: Any) -> Any:
    """Return what a text means as a value of a type.

    Raises:
        ValueError: nothing.

    >>> _read("1 100", tuple[float, float] | None)
    (1.0, 100.0)
    """
    for one in _kinds(kind):
        try:
            return _read_as(text, one)
        except (ValueError, KeyError):
            continue
    raise ValueError(f"{text!r} is not {' or '.join(_described(kind))}")


def _read_as(text: str, kind: Any) -> Any:
    if typing.get_origin(kind) is typing.Literal:
        return {name: name for name in typing.get_args(kind)}[text]
    if typing.get_origin(kind) is tuple:
        return tuple(_read_as(part, one) for part, one in zip(text.split(), typing.get_args(kind), strict=True))
    if kind is type(None) or kind is bool:
        return {"none": None}[text.lower()] if kind is not bool else {"true": True, "false": False}[text.lower()]
    if kind in CELLS:
        return {_cell_name(kind): kind}[text]()
    value = kind(text)
    if not text or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(text)
    return value


def _described(kind: Any) -> list[str]:
    """Say what is expected."""
    plain = {int: "a whole number", float: "a number", bool: "True or False", type(None): "None", str: "a text"}
    found = [plain[one] for one in _kinds(kind) if one in plain]
    for one in _kinds(kind):
        if typing.get_origin(one) is typing.Literal:
            found.append("one of " + ", ".join(typing.get_args(one)))
        elif typing.get_origin(one) is tuple:
            found.append(f"{len(typing.get_args(one))} numbers with spaces between")
    cells = [_cell_name(one) for one in _kinds(kind) if one in CELLS]
    return [*found, "one of " + ", ".join(cells)] if cells else found


def _cell_name(kind: Any) -> str:
    """Return the name of a cell as `foretrace train` has it: `MinGRU` is `min-gru`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", kind.__name__).lower()


def _replaced(node: Any, way: Sequence[str], value: Value) -> Any:
    name, *rest = way
    kinds = typing.get_type_hints(type(node))
    if name not in kinds:
        raise ValueError(f"{type(node).__name__} has no setting {name.replace('_', '-')}")
    present = getattr(node, name)
    if rest:
        return dataclasses.replace(node, **{name: _replaced(present, rest, value)})
    new = _read(value, kinds[name]) if isinstance(value, str) else value
    # The cell that is there already keeps its settings.
    return node if type(new) is type(present) and isinstance(new, CELLS) else dataclasses.replace(node, **{name: new})
