"""Objects that learn: their fields hold plain values, which are saved and restored unchanged."""

import dataclasses
import reprlib
import typing
from collections import Counter
from typing import Any

from foretrace._runs.config_json import from_json, to_json


class Learned:
    """An object that learns; its fields hold its whole state, as in a dataclass.

    A field holds plain values or another such object. The arguments that an object is made with are
    other attributes, and are not saved.
    """

    def to_json(self) -> dict[str, Any]:
        """Return a copy of the state, as JSON if names and labels are."""
        return typing.cast(dict[str, Any], to_json(self))

    def restore(self, data: Any) -> None:
        """Restore a state that `to_json` returned for an object with the same arguments.

        Raises:
            ValueError: a value has another type, or does not fit these arguments.
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
        """Check restored values against the arguments, and derive the other fields.

        A value of the right type might still be an index outside an array, or shift labels by a
        row.
        """


@dataclasses.dataclass(init=False, eq=False)
class Counting(Learned):
    """An object that counts unusable values and reports the first one.

    `counts` has their number by reason. `news` holds the messages that were not reported yet.
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
