"""Rows as inputs, and labels that come later: which label belongs to which row, whatever the delay and the horizon."""

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from foretrace._rows.encode import Encoder
from foretrace._rows.target import Context, NumberContext, Target
from foretrace._rows.values import MAX_TEXT, as_label, as_text

_PLAIN = str | int | float | None
"""What JSON can hold; other values, such as decimals of a parquet file, are saved as their label."""


def _short(value: Any) -> Any:
    """Return a label that waits in bounded memory; no number is so long."""
    return as_text(value) if isinstance(value, str) and len(value) > MAX_TEXT else value


class LabelledRow(NamedTuple):
    """A row whose label has come.

    Args:
        context: what was known of the target when the row was predicted.
        targets: the row's target, or the targets of the steps ahead, as scores need them; None for one that is missing.
        label: the label as the loss needs it; None if there is nothing to learn.
    """

    context: Context
    targets: list[Any]
    label: Any


class DelayedLabels:
    """Turn the rows of one stream into inputs, and give each row the label that comes later.

    Without a horizon a row's own label comes after its prediction. With one, the row's own target is known before the
    steps that follow it are predicted.

    Streams that share a network share `encoder` and `target`, which learn from all of them. Pending labels and the last
    known target belong to the one stream.

    Args:
        encoder: encoder of the inputs; the target is not among them.
        target: what is predicted.
        delay: number of rows after which a label is known.
        horizon: number of steps ahead: 0 to predict the target of a row from the row, h to predict the targets of the
            next h rows.
        previous: whether the last known target is an input.

    `newest` is what was known of the target when the last row was predicted.
    """

    def __init__(self, encoder: Encoder, target: Target, *, delay: int = 0, horizon: int = 0, previous: bool = True):
        self.encoder = encoder
        self.target = target
        self.delay = delay
        self.horizon = horizon
        self.previous = previous
        self.width = encoder.width + previous * target.features
        self.pending_labels: deque[Any] = deque()
        self.contexts: deque[Context] = deque()
        self.recent: deque[Any] = deque(maxlen=max(horizon, 1))
        self.resolved: deque[LabelledRow] = deque()
        self.num_labels = 0
        self.last: Any = None
        self.newest: Context = target.context()

    @property
    def total_delay(self) -> int:
        """Number of rows after which all labels of a row have come."""
        return self.delay + self.horizon

    def push(self, row: Mapping[Any, Any], value: Any) -> np.ndarray:
        """Take the next row and its target; return the inputs. Rows whose label came with it are in `resolved`.

        Raises:
            ValueError, TypeError: the target is refused; nothing has changed.
        """
        self.target.check(value)
        self.target.last = self.last
        came = self._receive(value) if self.horizon else None
        x = self.encode(row, learn=True)
        self.newest = self.target.context()
        if isinstance(self.newest, NumberContext):
            self.newest = self.newest._replace(came=came)
        self.contexts.append(self.newest)
        if not self.horizon:
            self._receive(value)
        return x

    def encode(self, row: Mapping[Any, Any], *, learn: bool = False) -> np.ndarray:
        """Return the inputs of a row; by default nothing changes."""
        self.target.last = self.last
        x = self.encoder(row, learn=learn)
        return np.concatenate([x, self.target.previous()]) if self.previous else x

    def advance(self, row: Mapping[Any, Any], value: Any) -> np.ndarray:
        """Return the inputs of the next row without learning: only the last known target moves on."""
        self.target.last = self.last
        if self.horizon:
            self._observe(value)
        x = self.encode(row)
        self.newest = self.target.context()
        if not self.horizon:
            self._observe(value)
        return x

    def pop_resolved(self, count: int) -> list[LabelledRow]:
        """Remove and return the oldest rows whose labels have come, at most `count`."""
        return [self.resolved.popleft() for _ in range(min(count, len(self.resolved)))]

    @property
    def num_pending(self) -> int:
        """Number of rows that were predicted and not yet popped: their labels are lost if the stream ends here."""
        return len(self.contexts) + len(self.resolved)

    def to_json(self) -> dict[str, Any]:
        """Return everything that the next rows depend on."""
        self.target.last = self.last
        return {"encoder": self.encoder.to_json(), "target": self.target.to_json(), **self.own_to_json()}

    def own_to_json(self) -> dict[str, Any]:
        """Return what belongs to this stream alone."""
        return {
            "last": self.last,
            "pending_labels": [v if isinstance(v, _PLAIN) else as_label(v) for v in self.pending_labels],
            "contexts": list(self.contexts),
            "recent": list(self.recent),
            "num_labels": self.num_labels,
            "resolved": [list(row) for row in self.resolved],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `to_json` returned of an object made with the same arguments."""
        self.encoder.restore(state["encoder"])
        self.target.restore(state["target"])
        self.restore_own(state)

    def restore_own(self, state: dict[str, Any]) -> None:
        """Restore what `own_to_json` returned."""
        context = self.target.context_from_json
        self.last = state["last"]
        self.pending_labels = deque(state["pending_labels"])
        self.contexts = deque(context(values) for values in state["contexts"])
        self.recent = deque(state["recent"], maxlen=self.recent.maxlen)
        self.num_labels = state["num_labels"]
        self.resolved = deque(self.labelled_row(row) for row in state["resolved"])

    def labelled_row(self, saved: list[Any]) -> LabelledRow:
        """Return a labelled row that was saved as a list."""
        values, *rest = saved
        return LabelledRow(self.target.context_from_json(values), *rest)

    def _observe(self, value: Any) -> None:
        self.pending_labels.append(_short(value))
        if len(self.pending_labels) > self.delay:
            self.target.observe(self.pending_labels.popleft())
            self.last = self.target.last

    def _receive(self, value: Any) -> Any:
        """Take the target of the newest row; return the one that is known now, None if it is missing."""
        self.pending_labels.append(_short(value))
        if len(self.pending_labels) > self.delay:
            self.recent.append(self.target.learn(self.pending_labels.popleft()))
            self.last = self.target.last
            self.num_labels += 1
            # The h targets of the first row are those of the rows behind it: its own is not among them.
            if self.num_labels > self.horizon:
                self._resolve()
            return self.recent[-1]
        return None

    def _resolve(self) -> None:
        targets = list(self.recent)
        context = self.contexts.popleft()
        self.resolved.append(LabelledRow(context, targets, self.target.label(targets, context)))
