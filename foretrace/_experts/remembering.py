"""All recurrent experts of a mixture at once, and their carries, which belong to a stream each."""

from typing import Any, NamedTuple

import optax

from foretrace._experts.arrivals import Row
from foretrace._experts.expert import AbstractRecurrentExpert, Features
from foretrace._experts.shape import Shape
from foretrace._experts.slots import in_slots, read, write
from foretrace._types import Array, Bool, Float


class Carried(NamedTuple):
    """Carries of one stream.

    Args:
        ahead: before the next row; None without delay.
        before: before the row whose label has come.
        has_row: whether there is such a row.
    """

    ahead: tuple[Any, ...] | None
    before: tuple[Any, ...]
    has_row: Bool[Array, ""]


class Remembering:
    """Recurrent experts.

    Args:
        experts: the experts.
        shape: shape of the streams. With members each leaf of a carry has an axis of slots in
            front.
    """

    def __init__(self, experts: tuple[AbstractRecurrentExpert, ...], shape: Shape):
        self.experts, self.shape = experts, shape
        self.names = tuple(name for expert in experts for name in expert.names)

    def init(self) -> tuple[Any, ...]:
        """Return the states before the first row."""
        return tuple(expert.init() for expert in self.experts)

    def init_carries(self) -> tuple[Any, ...]:
        """Return all streams' carries before their first row; the last slot is for missing rows."""
        carries = self._new()
        return carries if self.shape.members is None else in_slots(carries, self.shape.slots + 1)

    def of_stream(self, carries: Any, row: Row) -> tuple[Any, ...]:
        """Return the carries of the stream of a row."""
        if self.shape.members is None:
            return carries
        kept = read(carries, row.slot)
        return optax.tree.where(row.is_new, self._new(), kept)

    def put(self, carries: Any, row: Row, one: Any) -> Any:
        """Return the carries of all streams, with new ones for the stream of a row."""
        if self.shape.members is None:
            return one
        return write(carries, row.slot, one)

    def predict(self, states: Any, carries: Any, features: Features) -> list[Float[Array, "E O"]]:
        """Return the predictions of each."""
        parts = zip(self.experts, states, carries, strict=True)
        return [expert.predict(state, carry, features) for expert, state, carry in parts]

    def move(
        self, states: Any, carries: Any, features: Features, moves: Bool[Array, ""]
    ) -> tuple[Any, ...]:
        """Return the carries of a stream behind a row; as they were if there is no row."""
        parts = zip(self.experts, states, carries, strict=True)
        return tuple(
            expert.chosen(moves, expert.move(state, carry, features), carry)
            for expert, state, carry in parts
        )

    def learn(
        self,
        states: Any,
        carried: Carried,
        features: Features,
        label: Float[Array, "O"],
        known: Bool[Array, ""],
    ) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]:
        """Return the states after a row's label, the carries behind the row, and those ahead."""
        if not self.experts:
            return (), (), ()
        # No branch: it would cost more than it spares where most rows have labels.
        ahead = (None,) * len(self.experts) if carried.ahead is None else carried.ahead
        known = known & carried.has_row
        found = [
            expert.learn(state, before, first, features, label, known)
            for expert, state, before, first in zip(
                self.experts, states, carried.before, ahead, strict=True
            )
        ]
        states, after, ahead = (tuple(each) for each in zip(*found, strict=True))
        parts = zip(self.experts, after, carried.before, strict=True)
        return states, tuple(one.chosen(carried.has_row, *each) for one, *each in parts), ahead

    def _new(self) -> tuple[Any, ...]:
        return tuple(expert.new_carry() for expert in self.experts)
