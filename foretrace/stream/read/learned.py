"""Objects that learn, whose fields hold plain values that are saved and restored unchanged."""

import dataclasses
import reprlib
import typing
from collections import Counter
from typing import Any

from foretrace._runs.config_json import from_json, to_json


class Learned:
    """An object that learns. Its fields hold its whole state, as in a dataclass.

    A field holds plain values or another such object. The arguments of the initialiser are stored
    as other attributes, which are not saved.
    """

    def to_json(self) -> dict[str, Any]:
        """Return a copy of the state. The copy is JSON if names and labels are JSON."""
        return typing.cast(dict[str, Any], to_json(self))

    def restore(self, data: Any) -> None:
        """Restore a state that `to_json` returned for an object with the same arguments.

        Raises:
            ValueError: a value has the wrong type, or does not fit the arguments.
        """
        data = from_json(dict[str, Any], data)
        for name, hint in typing.get_type_hints(type(self)).items():
            part = getattr(self, name)
            if isinstance(part, Learned):
                part.restore(data.get(name))
            else:
                setattr(self, name, from_json(hint, data.get(name), name))
        self._restored()

    def _restored(self) -> None:
        """Check restored values against the arguments, and compute the other attributes.

        A value of the right type may still be invalid: an index outside of an array, for example,
        or a list that would shift labels by a row.
        """


@dataclasses.dataclass(init=False, eq=False)
class Counting(Learned):
    """An object that counts unusable values, and reports the first one.

    `counts` has the number of unusable values for each reason. `news` has the messages that have
    not been reported yet.
    """

    counts: Counter[str]

    def __init__(self) -> None:
        self.counts = Counter()
        self.news: list[str] = []

    def _tell(self, reason: str, news: str) -> None:
        self.counts[reason] += 1
        if self.counts[reason] == 1:
            self.news.append(news)


def check_fits(fits: bool, name: str, value: Any, expected: str) -> None:
    """Check a restored value.

    Raises:
        ValueError: the value does not fit.
    """
    if not fits:
        raise ValueError(f"{name}={reprlib.repr(value)} must be {expected}")
