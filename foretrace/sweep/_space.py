"""The searched options of a command, each with values or a range."""

import contextlib
import functools
import io
import itertools
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import tyro

from foretrace._options.cells import FLAT
from foretrace._runs.config_json import differences

Value = str | int | float
"""Value of an option: a number sampled from a range, or a text as on the command line."""


def library() -> Any:
    """Import Optuna with its messages disabled.

    Raises:
        ValueError: Optuna is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        raise ValueError("a sweep needs optuna; pip install 'foretrace[sweep]'") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def dimensions(argument: str, texts: Sequence[str], config: Any) -> dict[str, Any]:
    """Return Optuna's distribution for each option in the texts of `--grid` or `--search`.

    Raises:
        ValueError: an option is unknown, or the configuration refuses a value or a range.

    >>> from foretrace.experiment import Config
    >>> dimensions("--search", ["rule=online,bptt", "depth=1:4"], Config())["depth"]
    IntDistribution(high=4, log=False, low=1, step=1)
    """
    found, places = dict[str, Any](), set[str]()
    for text in texts:
        option, equals, values = text.partition("=")
        option = option.strip().removeprefix("--").replace("_", "-")
        try:
            if not equals:
                raise ValueError("expected OPTION=VALUES")
            found[option] = _read(option, values.strip(), config)
            if argument == "--grid" and not hasattr(found[option], "choices"):
                raise ValueError(f"{values} is a range, for --search; a grid needs values: 1,2")
            # A short and a long name may be the same option, which the changed settings reveal.
            ends = (applied(config, {option: ends_of(found[option])[at]}) for at in (0, -1))
            changed = {option} | {line.partition(":")[0] for line in differences(*ends)}
            if changed & places:
                raise ValueError("this option is named twice")
        except ValueError as error:
            raise ValueError(f"{argument} {text}: {error}") from error
        places |= changed
    return found


def ends_of(distribution: Any) -> Sequence[Value]:
    """Return the values of an option, or the ends of its range."""
    return getattr(distribution, "choices", None) or (distribution.low, distribution.high)


def applied(config: Any, values: Mapping[str, Value]) -> Any:
    """Return a configuration with changed options, parsed as on the command line.

    Raises:
        ValueError: the configuration has no such option, or refuses a value.

    >>> from foretrace.experiment import Config
    >>> applied(Config(), {"network.cell": "min-gru", "optimizer.clip": "None"}).network.cell
    MinGRU(state_size=None, timescales=None)
    """
    ways: list[list[tuple[str, ...]]] = []
    for option, value in values.items():
        text, name = str(value), f"--{option}"
        ways.append([(name, *shlex.split(text))])
        if text.lower() in ("true", "false", "none"):  # or as given, for an option of texts
            ways[-1].insert(0, (name, text.capitalize()))
    refused = None
    for words in itertools.product(*ways):
        try:
            return _parsed(config, tuple(itertools.chain(*words)))
        except ValueError as error:
            refused = refused or error
    assert refused is not None
    raise refused


@functools.lru_cache(maxsize=4096)
def _parsed(config: Any, arguments: tuple[str, ...]) -> Any:
    said, options = io.StringIO(), (tyro.conf.FlagConversionOff,)
    try:
        with FLAT, contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            return tyro.cli(
                type(config), prog="a trial", args=arguments, default=config, config=options
            )
    except SystemExit:
        raise ValueError(_complaint(said.getvalue())) from None


def _complaint(said: str) -> str:
    """Return tyro's error message without the frame and the help."""
    parts = [" ".join(part.split()).strip("│ ") for part in re.split(r"[-─]{9,}", said)[1:]]
    added = ("For full helptext", "Argument helptext")
    text = "; ".join(part for part in parts if part and not part.startswith(added))
    # The description of a suggested option follows its names, which are enough here.
    return re.sub(r"(Available[^;]*; )?(Perhaps you meant: (--[\w.-]+(, )?)+)[^;]*", r"\2", text)


def _read(option: str, text: str, config: Any) -> Any:
    kinds = library().distributions
    # A text with a colon may also be a value, such as a path.
    ends = re.fullmatch(r"(?:log:)?([^:,]+):([^:,]+)", text)
    if ends and not _takes(config, option, text):
        for end in ends.groups():
            applied(config, {option: end})  # raises an error if the text is no value
        low, high = map(float, ends.groups())
        if not low < high < math.inf:
            raise ValueError("a range goes from a smaller to a larger number")
        log = text.startswith("log:")
        if low.is_integer() and high.is_integer() and not _takes(config, option, low + 0.5):
            return kinds.IntDistribution(int(low), int(high), log)
        return kinds.FloatDistribution(low, high, log)
    text = re.sub(r"\s+(?=[^(]*\))", "", text)  # tyro separates the words of a value by spaces
    values = [part.strip() for part in re.split(r",(?![^(]*\))", text)]
    if len({applied(config, {option: value}) for value in values}) < len(values):
        raise ValueError("the same value twice")
    return kinds.CategoricalDistribution(values)


def _takes(config: Any, option: str, value: Value) -> bool:
    with contextlib.suppress(ValueError):
        return bool(applied(config, {option: value}))
    return False
