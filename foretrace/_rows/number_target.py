"""A number as target, now or at later steps: running moments, last value, intervals."""

from collections import Counter
from typing import Any, NamedTuple

import numpy as np

from foretrace._rows.encode import EncodingError, Outliers, clip
from foretrace._rows.intervals import Intervals, SavedIntervals
from foretrace._rows.running import Moments, SavedMoments
from foretrace._rows.saved import (
    check_counts,
    check_derived,
    check_number_of_stream,
    check_size,
    check_within,
)
from foretrace._rows.target import NumberContext
from foretrace._rows.values import MAX_ABS_VALUE, as_number, check_number, is_missing
from foretrace._runs.config_json import from_json

_LAST: Any = float | None
_TARGETS: Any = list[float | None]
"""Types of what is saved of the numbers of a stream."""

_LEAST_DEVIATION = 1e-200
"""No variance above zero has a smaller root."""


class SavedNumbers(NamedTuple):
    """Saved form of a target of numbers."""

    moments: SavedMoments
    last: float | None
    counts: dict[str, int]
    intervals: SavedIntervals


class NumberTarget:
    """A number now, or at each of the next steps. Before a number is known, the mean is 0.

    Args:
        outputs: how many numbers are predicted: one, or one for each step ahead.
        bound: number of standard deviations from the mean beyond which a target counts as an
            outlier.
        outliers: what happens to an outlier: "clip" learns it as if it lay at the bound and scores
            it as it is, "mask" treats it as missing, "stop" raises an error.
        coverage: share of the numbers that prediction intervals are to hold.
        strict: whether a target that is neither a number nor missing is refused instead of counted.
    """

    def __init__(
        self,
        outputs: int = 1,
        *,
        bound: float = 10.0,
        outliers: Outliers = "clip",
        coverage: float = 0.9,
        strict: bool = False,
    ):
        self.output_size = outputs
        self.features = 2
        self.bound = bound
        self.outliers = outliers
        self.strict = strict
        self.moments = Moments()
        self.counts = Counter[str]()
        self.news: list[str] = []
        self.intervals = Intervals(outputs, coverage)
        self._margins: list[list[float]] | None = None  # of now, until the next error is learned
        self.last: float | None = None

    def check(self, value: Any, name: str = "the target") -> None:
        """Raise an error if a target is neither a number nor missing, and such a one is refused.

        Raises:
            ValueError: the target is something else.
        """
        if self.strict:
            check_number(value, name)

    def learn(self, value: Any) -> float | None:
        """Return a target as a number; None if it is missing, not a number, or a masked outlier.

        Raises:
            EncodingError: the target is an outlier, and the policy is to stop.
        """
        number = self._number(value)
        if number is None:
            self._count_unusable(value)
            return None
        inside = self._clip(number)
        if inside != number:
            self.counts["outlier targets"] += 1
            if self.outliers == "stop":
                raise EncodingError(
                    f"the target is {str(value)[:80]!r}, more than {self.bound:g} standard "
                    f"deviations from its mean {self.moments.mean:g}; clean the source, or choose "
                    "--outliers clip or mask"
                )
            if self.outliers == "mask":
                return None
        self.moments.learn(number, self.bound)
        self.last = number
        return number

    def observe(self, value: Any) -> None:
        """Set the last known number."""
        number = self._number(value)
        if number is not None and (self.outliers != "mask" or self._clip(number) == number):
            self.last = number

    def describe(self, output: np.ndarray, context: NumberContext | None = None) -> list[Any]:
        """Return the predicted numbers."""
        return np.asarray(output, np.float64).tolist()

    def interval(
        self,
        output: np.ndarray,
        context: NumberContext | None = None,
        coverage: float | None = None,
    ) -> Any:
        """Return the lower and upper ends of the intervals of the predicted numbers, (2, O).

        Args:
            output: predicted numbers.
            context: knowledge of the target when they were predicted. Default: the present
                knowledge.
            coverage: share of the numbers to hold, of what is known now. Default: the target's.

        Raises:
            ValueError: the coverage lies outside of the tracked ones.
        """
        predicted = np.asarray(output, np.float64)
        if coverage is not None:
            margins = self.intervals.margins(self.moments.scale, coverage)
        else:
            margins = np.asarray(self._present_margins() if context is None else context.margins)
        return np.stack([predicted - margins[0], predicted + margins[1]])

    def learn_output(self, output: np.ndarray, targets: list[Any], context: NumberContext) -> None:
        """Learn the errors of a prediction; nothing is learned if a label is missing."""
        if None in targets or context.margins is None:
            return
        errors = np.asarray(targets, np.float64) - output
        self.intervals.learn(errors, np.asarray(context.margins), context.deviation)
        self._margins = None

    def _present_margins(self) -> list[list[float]]:
        if self._margins is None:
            self._margins = self.intervals.margins(self.moments.scale).tolist()
        margins = self._margins
        if not self.intervals.num_labels:
            self._margins = None  # they follow the deviation until there are errors
        return margins

    def context(self) -> NumberContext:
        """Return the mean, the last number, the standard deviation and the margins of now."""
        return NumberContext(
            self.moments.mean, self.last, self.moments.scale, self._present_margins()
        )

    def context_from_json(self, values: Any) -> NumberContext:
        """Return a context that was saved as JSON.

        Raises:
            ValueError: it is nothing that `context` returns.
        """
        context = from_json(NumberContext, values)
        for name in ("mean", "last", "came"):
            if (number := getattr(context, name)) is not None:
                check_number_of_stream(name, [number])
        check_within("deviation", [context.deviation], _LEAST_DEVIATION, 2 * MAX_ABS_VALUE)
        if context.margins is not None:
            check_size("margins", context.margins, 2)
            for margins in context.margins:
                check_size("margins", margins, self.output_size)
                check_derived("margins", margins)
        return context

    def targets_from_json(self, targets: list[Any]) -> list[float | None]:
        """Return the targets of a row that were saved as JSON.

        Raises:
            ValueError: they are nothing that `learn` returns.
        """
        numbers = from_json(_TARGETS, targets)
        check_size("targets", numbers, self.output_size)
        check_number_of_stream("targets", [value for value in numbers if value is not None])
        return numbers

    def last_from_json(self, value: Any) -> float | None:
        """Return a last number that was saved as JSON.

        Raises:
            ValueError: it is none.
        """
        number = from_json(_LAST, value)
        check_number_of_stream("last", [] if number is None else [number])
        return number

    def previous(self) -> np.ndarray:
        """Return the last number in the present scale, and 1 if it is missing."""
        if self.last is None:
            return np.array([0.0, 1.0])
        return np.array([clip(self.moments.score(self.last), self.bound), 0.0])

    def to_json(self) -> SavedNumbers:
        """Return the learned state."""
        return SavedNumbers(
            self.moments.to_json(), self.last, dict(self.counts), self.intervals.to_json()
        )

    def restore(self, state: Any) -> None:
        """Restore what `to_json` returned.

        Raises:
            ValueError: it is nothing that `to_json` returns.
        """
        saved = from_json(SavedNumbers, state)
        check_counts("counts", saved.counts)
        self.last = self.last_from_json(saved.last)
        self.intervals.restore(saved.intervals)
        self._margins = None
        self.moments.restore(saved.moments)
        self.counts = Counter(saved.counts)

    def _number(self, value: Any) -> float | None:
        """Return a number; None if the value is missing or not a finite number."""
        number = as_number(value)  # no text that stands for a missing value is a finite number
        return number if number is not None and abs(number) < MAX_ABS_VALUE else None

    def _count_unusable(self, value: Any) -> None:
        if is_missing(value):
            self.counts["missing targets"] += 1
        elif as_number(value) is not None:
            self.counts["infinite targets"] += 1
        else:
            self.counts["targets that are no number"] += 1
            if self.counts["targets that are no number"] == 1:
                self.news.append(
                    f"the target holds {repr(value)[:80]}, which is no number: nothing is learned "
                    "from this row, nor from later ones like it"
                )

    def _clip(self, number: float) -> float:
        """Return a number, or the bound if it lies beyond."""
        return self.moments.within(number, self.bound)
