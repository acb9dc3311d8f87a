"""Configurations as JSON, each object with its type."""

import dataclasses
import typing
from typing import Any

Kind = typing.TypeVar("Kind")


_TYPES: dict[str, type] = {}


def recorded(kind: type[Kind]) -> type[Kind]:
    """Let `from_json` read configurations of this type, too."""
    _TYPES[kind.__name__] = kind
    return kind


def to_json(config: Any) -> Any:
    """Return a configuration as JSON objects, each with its type.

    >>> to_json(LRU())
    {'type': 'LRU', 'state_size': 64, 'r_min': 0.0, 'r_max': 1.0, 'timescales': None}
    """
    if not dataclasses.is_dataclass(config):
        return config
    values = {field.name: to_json(getattr(config, field.name)) for field in dataclasses.fields(config)}
    return {"type": type(config).__name__, **values}


def from_json(data: Any) -> Any:
    """Return the configuration that `to_json` wrote.

    Raises:
        ValueError: an unknown type or setting.
    """
    if not isinstance(data, dict):
        return data
    values = {name: from_json(value) for name, value in data.items() if name != "type"}
    try:
        return _TYPES[data["type"]](**values)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a configuration of this version of foretrace: {error}") from error


def differences(a: Any, b: Any, place: str = "") -> list[str]:
    """List the settings in which two configurations differ, as "place: a, b".

    >>> differences(Config(steps=3), Config(steps=4))
    ['steps: 3, 4']
    """
    if dataclasses.is_dataclass(a) and type(a) is type(b):
        found = []
        for field in dataclasses.fields(a):
            found += differences(getattr(a, field.name), getattr(b, field.name), f"{place}.{field.name}")
        return found
    return [] if a == b else [f"{place.lstrip('.')}: {a}, {b}"]
