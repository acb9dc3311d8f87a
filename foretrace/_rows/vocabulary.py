"""Slots for values in the order of their first appearance."""

from collections.abc import Callable
from typing import Any


class Vocabulary:
    """Slots for values in the order of their first appearance, up to a capacity.

    Args:
        capacity: maximum number of values.
        values: first values.
        key: what values are compared by. Default: the value itself.

    Raises:
        ValueError: there are more values than the capacity, or two are equal.

    >>> words = Vocabulary(2, key=str.lower)
    >>> [words.add(word) for word in ("a", "b", "A", "c")], words.values
    ([0, 1, 0, None], ['a', 'b'])
    """

    def __init__(
        self,
        capacity: int,
        values: list[Any] | None = None,
        *,
        key: Callable[[Any], Any] | None = None,
    ):
        self.capacity = capacity
        self.values: list[Any] = list(values or [])
        self._key = key
        self._slots = {
            value if key is None else key(value): i for i, value in enumerate(self.values)
        }
        if not len(self._slots) == len(self.values) <= capacity:
            raise ValueError(f"{len(self.values)} values must be distinct, and at most {capacity}")

    def __len__(self) -> int:
        return len(self.values)

    def get(self, value: Any) -> int | None:
        """Return the slot of a value; None if it has none."""
        return self._slots.get(value if self._key is None else self._key(value))

    def add(self, value: Any) -> int | None:
        """Return the slot of a value, a new one if it has none; None if all are taken."""
        key = value if self._key is None else self._key(value)
        slot = self._slots.get(key)
        if slot is None and len(self.values) < self.capacity:
            slot = self._slots[key] = len(self.values)
            self.values.append(value)
        return slot
