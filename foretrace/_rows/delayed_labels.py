"""Rows as inputs, and late labels, matched to their rows for every delay and horizon."""

import math
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from foretrace._rows.encode import Encoder
from foretrace._rows.number_target import NumberTarget
from foretrace._rows.saved import MOST, check_derived, check_size, check_within
from foretrace._rows.target import Context, NumberContext, Target
from foretrace._rows.values import MAX_TEXT, as_label, as_text, as_time, is_missing
from foretrace._runs.config_json import from_json

_PLAIN = str | int | float | None
"""Values that JSON can hold; others, such as decimals, are saved as their label."""


def _short(value: Any) -> Any:
    """Return a label that waits in bounded memory; no number is so long."""
    return as_text(value) if isinstance(value, str) and len(value) > MAX_TEXT else value


def seconds_of(value: Any) -> float | None:
    """Return a time as seconds since 1970; None if it is missing or none."""
    return None if is_missing(value) else as_time(value)


def gap(then: float | None, now: float | None) -> float | None:
    """Return the logarithm of the seconds between two rows; None unless time went on."""
    return None if then is None or now is None or now <= then else math.log(now - then)


class LabelledRow(NamedTuple):
    """A row whose label has come.

    Args:
        context: knowledge of the target when the row was predicted.
        targets: the row's target, or the targets of the steps ahead; None for one that is missing.
    """

    context: Context
    targets: list[Any]


class SavedRow(NamedTuple):
    """Saved form of a row whose label has arrived; the target knows the types."""

    context: list[Any]
    targets: list[Any]


class SavedLabels(NamedTuple):
    """Saved form of one stream's labels, without the parts that streams share."""

    last: Any
    pending_labels: list[str | int | float | bool | None]
    contexts: list[list[Any]]
    recent: list[Any]
    num_labels: int
    resolved: list[SavedRow]
    times: list[float | None]


class DelayedLabels:
    """Turn the rows of one stream into inputs, and give each row the label that comes later.

    Without a horizon a row's own label comes after its prediction. With one, the row's own target
    is known before the steps that follow it are predicted.

    Streams that share a network share `encoder` and `target`, which learn from all of them. Pending
    labels and the last known target belong to the one stream.

    Args:
        encoder: encoder of the inputs; the target is not among them.
        target: predicted quantity.
        delay: number of rows after which a label is known.
        horizon: number of steps ahead: 0 to predict the target of a row from the row, h to predict
            the targets of the next h rows.
        previous: whether the last known target is an input.
        gaps: time column of each column that holds the time since the last row of the stream, as
            the logarithm of seconds.

    `newest` is the knowledge of the target when the last row was predicted.
    """

    def __init__(
        self,
        encoder: Encoder,
        target: Target,
        *,
        delay: int = 0,
        horizon: int = 0,
        previous: bool = True,
        gaps: Mapping[Any, Any] | None = None,
    ):
        self.encoder = encoder
        self.target = target
        self.delay = delay
        self.horizon = horizon
        self.previous = previous
        self.gaps = dict(gaps or {})
        self.times: list[float | None] = [None] * len(self.gaps)
        self.width = encoder.width + previous * target.features
        self.is_number = isinstance(target, NumberTarget)
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
        """Take the next row and its target; return the inputs. Resolved rows are in `resolved`.

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
        """Return the inputs of a row; by default nothing changes.

        Behind them stand its numbers as they are, where a number is predicted.
        """
        self.target.last = self.last
        if self.gaps:
            row = self._with_gaps(row, learn)
        x, raw = self.encoder.encode(row, learn=learn)
        parts = [x, *([self.target.previous()] if self.previous else []), *([raw] * self.is_number)]
        return np.concatenate(parts)

    def advance(self, row: Mapping[Any, Any], value: Any) -> np.ndarray:
        """Return the next row's inputs without learning: only the last known target moves on."""
        self.target.last = self.last
        if self.horizon:
            self._observe(value)
        x = self.encode(row)
        if self.gaps:
            self._with_gaps(row, True)
        self.newest = self.target.context()
        if not self.horizon:
            self._observe(value)
        return x

    def _with_gaps(self, row: Mapping[Any, Any], moves: bool) -> dict[Any, Any]:
        """Return a row with the time since the one before; `moves` if the next row is behind it."""
        found, times = dict(row), list(self.times)
        for i, (name, column) in enumerate(self.gaps.items()):
            now, then = seconds_of(row.get(column)), times[i]
            found[name] = gap(then, now)
            times[i] = then if now is None else now
        if moves:
            self.times = times
        return found

    def pop_resolved(self, count: int) -> list[LabelledRow]:
        """Remove and return the oldest rows whose labels have come, at most `count`."""
        return [self.resolved.popleft() for _ in range(min(count, len(self.resolved)))]

    @property
    def num_pending(self) -> int:
        """Number of predicted rows whose labels are awaited, and lost if the stream ends here."""
        return len(self.contexts) + len(self.resolved)

    def to_json(self) -> dict[str, Any]:
        """Return everything that the next rows depend on."""
        self.target.last = self.last
        own = self.own_to_json()._asdict()
        return {"encoder": self.encoder.to_json(), "target": self.target.to_json(), **own}

    def own_to_json(self) -> SavedLabels:
        """Return what belongs to this stream alone."""
        return SavedLabels(
            self.last,
            [v if isinstance(v, _PLAIN) else as_label(v) for v in self.pending_labels],
            [list(context) for context in self.contexts],
            list(self.recent),
            self.num_labels,
            [saved_row(row) for row in self.resolved],
            list(self.times),
        )

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `to_json` returned of an object made with the same arguments.

        Raises:
            ValueError: it is nothing that `to_json` returns.
        """
        own = dict(state)
        self.encoder.restore(own.pop("encoder"))
        self.target.restore(own.pop("target"))
        self.restore_own(own)

    def restore_own(self, state: Any) -> None:
        """Restore what `own_to_json` returned.

        Raises:
            ValueError: it is nothing that `own_to_json` returns.
        """
        saved, steps = from_json(SavedLabels, state), self.recent.maxlen or 1
        num_labels = saved.num_labels
        check_within("num_labels", [num_labels], 0, MOST)
        # All that waits follows from the number of rows.
        rows = len(saved.pending_labels) + num_labels
        check_size("pending_labels", saved.pending_labels, min(rows, self.delay))
        check_size("contexts", saved.contexts, min(rows, self.total_delay))
        check_size("recent", saved.recent, min(num_labels, steps))
        check_size("times", saved.times, len(self.gaps))
        check_derived("times", [time for time in saved.times if time is not None])
        numbers = [*saved.recent, *[None] * steps][:steps]
        self.target.targets_from_json(numbers)
        self.last = self.target.last_from_json(saved.last)
        self.pending_labels = deque(saved.pending_labels)
        self.contexts = deque(map(self.target.context_from_json, saved.contexts))
        self.recent = deque(saved.recent, maxlen=steps)
        self.num_labels = num_labels
        self.resolved = deque(map(self.labelled_row, saved.resolved))
        self.times = saved.times

    def labelled_row(self, state: Any) -> LabelledRow:
        """Return a row that `saved_row` was called on.

        Raises:
            ValueError: it is nothing that `saved_row` returns.
        """
        saved = from_json(SavedRow, state)
        return LabelledRow(
            self.target.context_from_json(saved.context),
            self.target.targets_from_json(saved.targets),
        )

    def _observe(self, value: Any) -> None:
        self.pending_labels.append(_short(value))
        if len(self.pending_labels) > self.delay:
            self.target.observe(self.pending_labels.popleft())
            self.last = self.target.last

    def _receive(self, value: Any) -> Any:
        """Take the newest row's target; return the target known now, None if it is missing."""
        self.pending_labels.append(_short(value))
        if len(self.pending_labels) > self.delay:
            self.recent.append(self.target.learn(self.pending_labels.popleft()))
            self.last = self.target.last
            self.num_labels += 1
            # The h targets of the first row belong to the rows behind it: its own is not among
            # them.
            if self.num_labels > self.horizon:
                self._resolve()
            return self.recent[-1]
        return None

    def _resolve(self) -> None:
        targets = list(self.recent)
        context = self.contexts.popleft()
        self.resolved.append(LabelledRow(context, targets))


def saved_row(row: LabelledRow) -> SavedRow:
    """Return the saved form of a row whose label has arrived."""
    return SavedRow(list(row.context), row.targets)
