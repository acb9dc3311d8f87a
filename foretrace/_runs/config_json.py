"""Configurations and saved values as JSON, which is read and checked by their type hints.

A dataclass becomes an object with the name of its type. A NamedTuple becomes a list, or an object
without a type. A dictionary whose order matters becomes a list of pairs, whose names need not be
texts.
"""

import dataclasses
import inspect
import json
import reprlib
import types
import typing
from collections import Counter, OrderedDict, deque
from collections.abc import Collection
from typing import Any

Kind = typing.TypeVar("Kind")
_LARGEST = 2**1023
"""Whole numbers above it cannot be converted to floats."""

_SHORT = reprlib.Repr()
"""Short form of a value in a message, because a value in a damaged file may be very long."""
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 200
_PLAIN = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a text",
    type(None): "None",
}


def to_json(config: Any) -> Any:
    """Return a configuration as JSON objects that name their types. `unused` settings are null.

    Lists, dictionaries and tuples are copied, and their items are written in the same way.

    >>> from foretrace.tasks.copy import Copy
    >>> to_json(Copy())
    {'type': 'Copy', 'pattern_length': 20, 'padding': 7, 'bits': 7, 'samples': None}
    """
    if type(config) in _PLAIN:  # most values: a checkpoint may hold ten thousand waiting rows
        return config
    if isinstance(config, OrderedDict):
        return [[name, to_json(part)] for name, part in config.items()]
    if isinstance(config, dict):
        return {name: to_json(part) for name, part in config.items()}
    if isinstance(config, list | tuple | deque):
        return [to_json(part) for part in config]
    if not dataclasses.is_dataclass(config):
        return config
    values = {
        field.name: to_json(getattr(config, field.name)) for field in dataclasses.fields(config)
    }
    unused = dict.fromkeys(getattr(config, "unused", ()))
    return {"type": type(config).__name__, **values, **unused}


def from_json(kind: type[Kind], data: Any, place: str = "") -> Kind:
    """Return a configuration or a NamedTuple from JSON. Missing settings have their defaults.

    Args:
        kind: expected type: a dataclass, a NamedTuple or another type.
        data: parsed JSON.
        place: name of the value in error messages.

    Raises:
        ValueError: a setting is unknown, a value has the wrong type, or the configuration refuses a
            value. The message names the place, the value and the expected type.
    """
    return _read(kind, data, place)


def parse(text: str | bytes) -> Any:
    """Return parsed JSON.

    Raises:
        ValueError: the text is not JSON, or is nested more deeply than any JSON written here.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def check_types(config: Any) -> None:
    """Check a frozen dataclass against its type hints; make lists tuples and integers floats.

    Raises:
        ValueError: a value has the wrong type.

    >>> from foretrace.experiment import Config
    >>> Config(rule=7)
    Traceback (most recent call last):
      ...
    ValueError: rule=7 must be a text
    """
    for name, hint in _hints(type(config)).items():
        object.__setattr__(config, name, _read(hint, getattr(config, name), name))


def differences(a: Any, b: Any, place: str = "", *, but: Collection[str] = ()) -> list[str]:
    """List the settings in which two configurations differ, as "place: a, b".

    >>> from foretrace.experiment import Config
    >>> differences(Config(steps=3), Config(steps=4))
    ['steps: 3, 4']
    """
    if dataclasses.is_dataclass(a) and type(a) is type(b):
        found = []
        for field in dataclasses.fields(a):
            if field.name not in but:
                found += differences(
                    getattr(a, field.name), getattr(b, field.name), f"{place}.{field.name}"
                )
        return found
    return [] if a == b else [f"{place.lstrip('.')}: {a}, {b}"]


def _hints(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {name: hints[name] for name in inspect.signature(kind).parameters}


def _is_named_tuple(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def _read(kind: Any, value: Any, place: str) -> Any:
    members = _members(kind)
    for member in members:
        origin = typing.get_origin(member)
        if dataclasses.is_dataclass(member):
            if isinstance(value, member):  # type: ignore[arg-type]
                return value
            if isinstance(value, dict) and value.get("type") == member.__name__:  # type: ignore[union-attr]
                return _read_object(member, value, place)
        elif _is_named_tuple(member):
            if isinstance(value, dict):
                return _read_object(member, value, place)
            if isinstance(value, list | tuple) and len(value) <= len(member._fields):
                return _read_object(member, dict(zip(member._fields, value, strict=False)), place)
        elif member is Any:
            return value
        elif origin in (dict, Counter) and isinstance(value, dict):
            each = (*typing.get_args(member), int)[1]  # of a Counter: whole numbers
            return origin(
                {name: _read(each, part, f"{place}.{name}") for name, part in value.items()}
            )
        elif origin is OrderedDict and isinstance(value, list):
            one = types.GenericAlias(tuple, typing.get_args(member))
            return OrderedDict(_read(one, part, f"{place}[{i}]") for i, part in enumerate(value))
        elif origin in (list, deque) and isinstance(value, list):
            one = typing.get_args(member)[0]
            return origin(_read(one, part, f"{place}[{i}]") for i, part in enumerate(value))
        elif origin is tuple and isinstance(value, list | tuple):
            each = typing.get_args(member)
            each = each[:1] * len(value) if each[-1] is ... else each
            if len(each) == len(value):
                parts = zip(each, value, strict=True)
                return tuple(
                    _read(one, part, f"{place}[{i}]") for i, (one, part) in enumerate(parts)
                )
        elif origin is typing.Literal:
            if any(type(value) is type(each) and value == each for each in typing.get_args(member)):
                return value
        elif member in _PLAIN and type(value) is member:
            return value
        elif member is float and type(value) is int and abs(value) <= _LARGEST:
            return float(value)
    expected = " or ".join(map(_described, members))
    raise ValueError(f"{place or 'configuration'}={_SHORT.repr(value)} must be {expected}")


def _read_object(kind: Any, data: dict[str, Any], place: str) -> Any:
    hints, values = _hints(kind), {}
    for name, value in data.items():
        where = f"{place}.{name}".lstrip(".")
        if name in hints:
            values[name] = _read(hints[name], value, where)
        elif name != "type":
            known = ", ".join(hints)
            raise ValueError(
                f"{where}={_SHORT.repr(value)} is not a setting of {kind.__name__}; expected "
                f"{known}"
            )
    try:
        return kind(**values)
    except TypeError as error:  # a setting without a default is missing
        raise ValueError(f"{place or 'configuration'} is incomplete: {error}") from error


def _members(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type itself."""
    return (
        typing.get_args(kind)
        if typing.get_origin(kind) in (typing.Union, types.UnionType)
        else (kind,)
    )


def _described(kind: Any) -> str:
    if typing.get_origin(kind) is typing.Literal:
        return "one of " + ", ".join(map(str, typing.get_args(kind)))
    if typing.get_origin(kind) is tuple:
        each = typing.get_args(kind)
        if each[-1] is ...:
            return f"a list, each item {_described(each[0])}"
        return f"a pair, such as {(1, 1000)}" if len(each) == 2 else f"a list of {len(each)} values"
    if (origin := typing.get_origin(kind)) in (list, deque, OrderedDict, dict, Counter):
        return "an object" if origin in (dict, Counter) else "a list"
    return _PLAIN.get(kind) or kind.__name__
