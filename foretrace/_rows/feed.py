"""Rows and late labels as chunks: which label belongs to which row, whatever the delay and the horizon."""

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from foretrace._rows.encode import Encoder
from foretrace._rows.target import Context, Target

_PLAIN = str | int | float | None
"""What JSON can hold; other values, such as decimals of a parquet file, mean the same as text."""


class Due(NamedTuple):
    """A row whose labels have come.

    Args:
        context: what was known of the target when the row was predicted.
        taken: its target, or the targets of the steps ahead, as scores need them.
        label: as the loss needs them; None if there is nothing to learn.
    """

    context: Context
    taken: list[Any]
    label: Any


class Feed:
    """Turn rows into inputs, and labels into targets of the rows that they belong to.

    Args:
        encoder: of the inputs; the target is not among them.
        target: what is predicted.
        delay: rows after which a label is known.
        horizon: 0 to predict the target of a row from the row; h to predict those of the next h rows.
        previous: give the last known target as an input.

    Without horizon a row's own label comes after its prediction; with one, it is known before what follows is
    predicted.

    A feed belongs to one stream, whose labels and last known target it keeps. Feeds of streams that share a network
    share encoder and target: what these have learned of all of them.
    """

    def __init__(self, encoder: Encoder, target: Target, *, delay: int = 0, horizon: int = 0, previous: bool = True):
        self.encoder, self.target, self.delay, self.horizon = encoder, target, delay, horizon
        self.previous = previous
        self.width = encoder.width + previous * target.features
        self.on_the_way: deque[Any] = deque()
        self.contexts: deque[Context] = deque()
        self.recent: deque[Any] = deque(maxlen=max(horizon, 1))
        self.due: deque[Due] = deque()
        self.arrived, self.last = 0, None

    @property
    def rows_late(self) -> int:
        """Rows after which all labels of a row have come."""
        return self.delay + self.horizon

    def push(self, row: Mapping[Any, Any], value: Any) -> np.ndarray:
        """Take the next row and its target; return the inputs. Rows whose labels have come are in `due`."""
        self.target.last = self.last
        if self.horizon:
            self._send(value)
        x = self.look(row, learn=True)
        self.contexts.append(self.target.context())
        if not self.horizon:
            self._send(value)
        return x

    def look(self, row: Mapping[Any, Any], *, learn: bool = False) -> np.ndarray:
        """Return the inputs of a row."""
        self.target.last = self.last
        x = self.encoder(row, learn=learn)
        return np.concatenate([x, self.target.previous()]) if self.previous else x

    def pass_by(self, row: Mapping[Any, Any], value: Any) -> np.ndarray:
        """Return the inputs of the next row without learning: only the last known target moves on."""
        self.target.last = self.last
        if self.horizon:
            self._note(value)
        x = self.look(row)
        if not self.horizon:
            self._note(value)
        return x

    def _note(self, value: Any) -> None:
        self.on_the_way.append(value)
        if len(self.on_the_way) > self.delay:
            self.target.note(self.on_the_way.popleft())
            self.last = self.target.last

    def _send(self, value: Any) -> None:
        self.on_the_way.append(value)
        if len(self.on_the_way) > self.delay:
            self.recent.append(self.target.take(self.on_the_way.popleft()))
            self.last = self.target.last
            self.arrived += 1
            # The h targets that belong to the first row are those of the rows behind it: its own is not among them.
            if self.arrived > self.horizon:
                self._finish()

    def _finish(self) -> None:
        taken = list(self.recent)
        context = self.contexts.popleft()
        self.due.append(Due(context, taken, self.target.label(taken, context)))

    def take(self, count: int) -> list[Due]:
        """Remove and return the oldest rows whose labels have come, at most so many."""
        return [self.due.popleft() for _ in range(min(count, len(self.due)))]

    @property
    def unanswered(self) -> int:
        """Rows whose labels have not been taken: they are lost if the stream ends here."""
        return len(self.contexts) + len(self.due)

    def to_json(self) -> dict[str, Any]:
        """Return everything that the next rows depend on."""
        self.target.last = self.last
        return {"encoder": self.encoder.to_json(), "target": self.target.to_json(), **self.own_to_json()}

    def own_to_json(self) -> dict[str, Any]:
        """Return what belongs to this stream alone."""
        return {
            "last": self.last,
            "on_the_way": [value if isinstance(value, _PLAIN) else str(value) for value in self.on_the_way],
            "contexts": list(self.contexts),
            "recent": list(self.recent),
            "arrived": self.arrived,
            "due": [list(due) for due in self.due],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take up what `to_json` returned of a feed made in the same way."""
        self.encoder.restore(state["encoder"])
        self.target.restore(state["target"])
        self.restore_own(state)

    def restore_own(self, state: dict[str, Any]) -> None:
        """Take up what `own_to_json` returned."""
        self.last = state.get("last", self.target.last)
        self.on_the_way, self.contexts = deque(state["on_the_way"]), deque(state["contexts"])
        self.recent = deque(state["recent"], maxlen=self.recent.maxlen)
        self.arrived = state["arrived"]
        self.due = deque(Due(*due) for due in state["due"])
