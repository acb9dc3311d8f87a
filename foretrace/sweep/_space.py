"""Searched options of a command, each with some values or a range."""

import contextlib
import dataclasses
import functools
import io
import itertools
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_type_hints

import tyro

from foretrace.sweep._kinds import swept

Value = str | int | float
"""Value of an option: a number sampled from a range, or a text as on the command line."""


class Choice(NamedTuple):
    """An option and the values that it may take, as texts of the command line."""

    option: str
    values: tuple[str, ...]


class Range(NamedTuple):
    """A number from `low` to `high`, both included.

    Args:
        option: name of the option.
        low: smallest value.
        high: largest value.
        log: whether to sample uniformly in the logarithm.
        whole: whether the values are whole numbers.
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


def grid(texts: Sequence[str], config: Any) -> tuple[Choice, ...]:
    """Read what `--grid` says.

    Raises:
        ValueError: an option or a value that there is not.

    >>> from foretrace.experiment import Config
    >>> grid(["rule=online,bptt", "network.depth=1,2"], Config())
    (Choice(option='rule', values=('online', 'bptt')), Choice(option='network.depth', values=('1',
    '2')))
    """
    return tuple(_each("--grid", texts, config, _choice))


def search(texts: Sequence[str], config: Any) -> tuple[Dimension, ...]:
    """Read what `--search` says.

    Raises:
        ValueError: an option, a value or a range that there is not.

    >>> from foretrace.experiment import Config
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
    return [
        dict(zip(names, values, strict=True))
        for values in itertools.product(*(d.values for d in dimensions))
    ]


def applied(config: Any, values: Mapping[str, Value]) -> Any:
    """Return a configuration with other values of some options, as the command would read them.

    Raises:
        ValueError: an option that is none of this configuration's, or a value that it refuses.

    >>> from foretrace.experiment import Config
    >>> applied(Config(), {"network.cell": "min-gru", "optimizer.clip": "None"}).network.cell
    MinGRU(state_size=None, timescales=None)
    """
    arguments: list[str] = []
    for option, value in values.items():
        if option == _CELL:
            arguments.insert(0, f"{option}:{value}")
        else:
            text = str(value)
            words = (
                [text.capitalize()]
                if text.lower() in ("true", "false", "none")
                else shlex.split(text)
            )
            arguments += [f"--{option}", *words]
    return _parsed(config, tuple(arguments))


_COMMA = r",(?![^(]*\))"
"""What separates values: a comma, but for those within parentheses."""

_CELL = "network.cell"
"""The option that is a subcommand on the command line."""


@functools.lru_cache(maxsize=4096)
def _parsed(config: Any, arguments: tuple[str, ...]) -> Any:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            options = (tyro.conf.CascadeSubcommandArgs, tyro.conf.FlagConversionOff)
            return tyro.cli(
                type(config),
                prog=f"foretrace {swept(config).name}",
                args=arguments,
                default=config,
                config=options,
            )
    except SystemExit:
        raise ValueError(_complaint(said.getvalue())) from None


def _complaint(said: str) -> str:
    """Return tyro's message about an option without its frame and its added help."""
    _, *parts = (" ".join(part.split()).strip("│ ") for part in re.split(r"[-─]{9,}", said))
    shown = [
        part
        for part in parts
        if part and not part.startswith(("For full helptext", "Argument helptext"))
    ]
    if any(part.startswith("Perhaps") for part in shown):
        shown = [part for part in shown if not part.startswith("Available subcommands")]
    # The meaning of a suggested option stands behind it; its names are enough here.
    shown = [re.sub(r"(Perhaps you meant: (?:--[\w.-]+(?:, )?)+).*", r"\1", part) for part in shown]
    return "; ".join(shown)


def short_names(config: Any) -> dict[str, str]:
    """Return the options of a configuration that have a short name, by that name.

    >>> from foretrace.experiment import Config
    >>> short_names(Config())["lr"], short_names(Config())["cell"]
    ('optimizer.learning-rate', 'network.cell')
    """
    found = {"cell": _CELL} if hasattr(config, "network") else {}
    return found | {short: option for option, _, names in _options(config) for short in names}


def _options(config: Any, place: str = "") -> Iterator[tuple[str, Any, list[str]]]:
    """Yield the name of each option, its value and its short names."""
    hints = get_type_hints(type(config), include_extras=True)
    for field in dataclasses.fields(config):
        marks, value = getattr(hints[field.name], "__metadata__", ()), getattr(config, field.name)
        option = f"{place}{field.name.replace('_', '-')}"
        yield (
            option,
            value,
            [
                name.removeprefix("--")
                for mark in marks
                for name in getattr(mark, "aliases", None) or ()
            ],
        )
        if dataclasses.is_dataclass(value):
            is_nameless = any(getattr(mark, "name", None) == "" for mark in marks)
            yield from _options(value, place if is_nameless else f"{option}.")


def _each(argument: str, texts: Sequence[str], config: Any, read: Callable[..., Any]) -> list[Any]:
    found = list[Dimension]()
    for text in texts:
        option, equals, rest = text.partition("=")
        option = option.strip().removeprefix("--").replace("_", "-")
        option = short_names(config).get(option, option)
        try:
            if not equals:
                raise ValueError("expected OPTION=VALUES")
            if any(dimension.option == option for dimension in found):
                raise ValueError("this option is named twice")
            found.append(read(option, rest.strip(), config))
        except ValueError as error:
            raise ValueError(f"{argument} {text}: {error}") from error
    return found


def _choice(option: str, text: str, config: Any) -> Choice:
    if _is_range(option, text, config):
        raise ValueError(f"{text} is a range, for --search; a grid needs values, such as 1,2")
    text = re.sub(r"\s+(?=[^(]*\))", "", text)  # the words of a value are separated by spaces
    values = tuple(part.strip() for part in re.split(_COMMA, text))
    if len({_value(config, option, value) for value in values}) < len(values):
        raise ValueError("the same value twice")
    return Choice(option, values)


def _choice_or_range(option: str, text: str, config: Any) -> Dimension:
    if not _is_range(option, text, config):
        return _choice(option, text, config)
    ends = text.removeprefix("log:").split(":")
    if len(ends) != 2:
        raise ValueError("expected a range LOW:HIGH or log:LOW:HIGH")
    low, high = (_value(config, option, end) for end in ends)
    if not low < high:
        raise ValueError("a range goes from a smaller to a larger number")
    log = text.startswith("log:")
    if log and low <= 0:
        raise ValueError("a range over orders of magnitude begins above zero")
    return Range(option, float(low), float(high), log, whole=isinstance(low, int))


def _is_range(option: str, text: str, config: Any) -> bool:
    """Say whether a text with a colon is a range; it may also be a value, such as a path."""
    if not re.fullmatch(r"(log:)?[^:,]+(:[^:,]+)+", text):
        return False
    try:
        applied(config, {option: text})
    except ValueError:
        return True
    return False


def _value(config: Any, option: str, text: str) -> Any:
    """Return a text as a value of an option.

    Raises:
        ValueError: no such option, or no such value of it.

    >>> from foretrace.experiment import Config
    >>> _value(Config(), "network.cell.timescales", "1 100")
    (1.0, 100.0)
    """
    value = next(
        value for name, value, _ in _options(applied(config, {option: text})) if name == option
    )
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{text!r} is not a finite number")
    return value
