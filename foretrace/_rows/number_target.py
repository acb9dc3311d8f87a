"""A number as target: the network learns its residual from a baseline, in a running scale.

    base   = mean + weight * (last - mean)
    y_hat  = base + scale * output            scale: root mean square of the residual y - base, for each step ahead

The weight is 0 ("value"), 1 ("change"), or that of the best linear prediction from the last number so far ("auto"):
near 1 where numbers move slowly, near 0 where the last number says nothing.
"""

from collections import Counter
from typing import Any, Literal, NamedTuple

import numpy as np

from foretrace._rows.encode import EncodingError, Outliers, clip
from foretrace._rows.intervals import Intervals, SavedIntervals
from foretrace._rows.running import MEMORY, Moments, SavedMoments
from foretrace._rows.saved import check_counts, check_number_of_stream, check_size, check_within
from foretrace._rows.target import NumberContext
from foretrace._rows.values import MAX_ABS_VALUE, as_number, check_number, is_missing
from foretrace._runs.config_json import from_json

TargetMode = Literal["auto", "change", "value"]


_LAST: Any = float | None
_TARGETS: Any = list[float | None]
_LABEL: Any = list[float] | None
"""Types of what is saved of the numbers of a stream."""


class SavedBaseline(NamedTuple):
    """What is saved of a baseline."""

    num_labels: int
    residuals: list[SavedMoments]
    product: list[float]
    power: float


class SavedNumbers(NamedTuple):
    """What is saved of a target of numbers."""

    moments: SavedMoments
    last: float | None
    baseline: SavedBaseline | None
    counts: dict[str, int]
    intervals: SavedIntervals


class Baseline:
    """Running scale of the residual at each step ahead, and weight of the last known number.

    Args:
        outputs: number of steps ahead.
        mode: "change" or "auto".
        bound: residuals beyond `bound` scales are clipped, once the scale has settled.

    Lists, not arrays: most streams have one step ahead, for which they take a tenth of the time.

    >>> baseline = Baseline(1, "change", 10.0)
    >>> for y, last in ((3.0, 1.0), (4.0, 3.0), (6.0, 4.0)):
    ...     label = baseline.learn([y - last], [0.0], 0.0)
    >>> round(baseline.scale[0] ** 2, 4)
    3.0
    """

    def __init__(self, outputs: int, mode: TargetMode, bound: float):
        self.mode = mode
        self.bound = bound
        self.count = 0
        self.residuals = [Moments(mean=0.0) for _ in range(outputs)]
        self.product = [0.0] * outputs
        self.power = 0.0

    @property
    def scale(self) -> list[float]:
        """The root mean square of the residual at each step ahead; 1 while it is zero."""
        return [moments.scale for moments in self.residuals]

    @property
    def weight(self) -> list[float]:
        """The slope of the best linear prediction of y - mean from last - mean, clipped to [0, 1]; 1 for "change"."""
        if self.mode == "change" or not self.power > 0:
            return [1.0] * len(self.product)
        return [min(max(product / self.power, 0.0), 1.0) for product in self.product]

    def learn(self, residual: list[float], ahead: list[float], last: float) -> list[float]:
        """Count the residual of a row; return it in the scale that includes it.

        Args:
            residual: y - base, at each step ahead.
            ahead: y - mean in standard deviations, likewise, for the weight.
            last: last - mean in standard deviations.
        """
        learned = [moments.learn(r, self.bound) for r, moments in zip(residual, self.residuals, strict=True)]
        self.count = min(self.count + 1, MEMORY)
        self.product = [old + (a * last - old) / self.count for a, old in zip(ahead, self.product, strict=True)]
        self.power += (last**2 - self.power) / self.count
        return [clip(r / scale, self.bound) for r, scale in zip(learned, self.scale, strict=True)]

    def to_json(self) -> SavedBaseline:
        """Return what was learned."""
        return SavedBaseline(self.count, [moments.to_json() for moments in self.residuals], self.product, self.power)

    def restore(self, state: Any) -> None:
        """Restore what `to_json` returned of an object made with the same arguments.

        Raises:
            ValueError: it is nothing that `to_json` returns.
        """
        saved = from_json(SavedBaseline, state)
        check_within("num_labels", [saved.num_labels], 0, MEMORY)
        check_within("power", [saved.power], 0, self.bound**2)
        check_within("product", saved.product, -(self.bound**2), self.bound**2)
        check_size("product", saved.product, len(self.residuals))
        for moments, each in zip(self.residuals, saved.residuals, strict=True):
            moments.restore(each)
        self.count, self.product, self.power = saved.num_labels, saved.product, saved.power


class NumberTarget:
    """A number now, or at each of the next steps; learned as its residual from a baseline, in a running scale.

    The baseline is the running mean ("value"), the last known number ("change"), or a point in between ("auto"); the
    head of this module has the formula. Before a number is known it is the mean.

    Args:
        outputs: how many numbers are predicted: one, or one for each step ahead.
        bound: number of standard deviations from the mean beyond which a target counts as an outlier.
        mode: baseline that the residual is taken from.
        outliers: what happens to an outlier: "clip" learns it as if it lay at the bound and scores it as it is, "mask"
            treats it as missing, "stop" raises an error.
        coverage: share of the numbers that prediction intervals are to hold.
        strict: whether a target that is neither a number nor missing is refused, in place of counted.
    """

    def __init__(
        self,
        outputs: int = 1,
        *,
        bound: float = 10.0,
        mode: TargetMode = "value",
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
        self.baseline = None if mode == "value" else Baseline(outputs, mode, bound)
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
                    f"the target is {str(value)[:80]!r}, more than {self.bound:g} standard deviations from its mean "
                    f"{self.moments.mean:g}; clean the source, or choose --outliers clip or mask"
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
        """Return the predicted numbers, given what was known then; by default what is known now."""
        return number_predictions(self.context() if context is None else context, output).tolist()

    def interval(self, output: np.ndarray, context: NumberContext | None = None, coverage: float | None = None) -> Any:
        """Return the lower and upper ends of the intervals of the predicted numbers, (2, O).

        Args:
            output: output of the network.
            context: what was known when it was predicted. Default: what is known now.
            coverage: share of the numbers to hold, of what is known now. Default: that of the target.

        Raises:
            ValueError: the coverage lies outside of the tracked ones.
        """
        predicted = number_predictions(self.context() if context is None else context, output)
        if coverage is not None:
            margins = self.intervals.margins(self.moments.scale, coverage)
        else:
            margins = np.asarray(self._present_margins() if context is None else context.margins)
        return np.stack([predicted - margins[0], predicted + margins[1]])

    def learn_output(self, output: np.ndarray, targets: list[Any], context: NumberContext) -> None:
        """Learn the errors of a prediction; nothing is learned if a label is missing."""
        if None in targets or context.margins is None:
            return
        errors = np.asarray(targets, np.float64) - number_predictions(context, output)
        self.intervals.learn(errors, np.asarray(context.margins), context.deviation)
        self._margins = None

    def _present_margins(self) -> list[list[float]]:
        if self._margins is None:
            self._margins = self.intervals.margins(self.moments.scale).tolist()
        margins = self._margins
        if not self.intervals.num_labels:
            self._margins = None  # they follow the deviation until there are errors
        return margins

    def label(self, targets: list[Any], context: NumberContext) -> list[float] | None:
        """Return the residuals from the baseline of then, in the present scale, which learns them."""
        if None in targets:
            return None
        if self.baseline is None or context.last is None:
            return [clip(self.moments.score(number), self.bound) for number in targets]
        bases = context.base if isinstance(context.base, list) else [context.base] * len(targets)
        residual = [number - base for number, base in zip(targets, bases, strict=True)]
        *ahead, last = (clip(self.moments.score(number), self.bound) for number in (*targets, context.last))
        return self.baseline.learn(residual, ahead, last)

    def context(self) -> NumberContext:
        """Return the mean, the last number, and base and scale of a prediction made now."""
        mean, deviation, margins = self.moments.mean, self.moments.scale, self._present_margins()
        if self.baseline is None or self.last is None:
            return NumberContext(mean, self.last, mean, deviation, deviation, margins)
        # A single outlier is no place to start from; two in a row may be a new level.
        level = self.last if self.moments.excess > 1 else self._clip(self.last)
        ahead = level - mean
        base = [mean + weight * ahead for weight in self.baseline.weight]
        return NumberContext(mean, self.last, base, self.baseline.scale, deviation, margins)

    def context_from_json(self, values: Any) -> NumberContext:
        """Return a context that was saved as JSON.

        Raises:
            ValueError: it is nothing that `context` returns.
        """
        context = from_json(NumberContext, values)
        for name, value in context._asdict().items():
            each = value if isinstance(value, list) else [] if value is None else [value]
            if name == "margins" and value is not None:
                check_size(name, value, 2)
                each = [*value[0], *value[1]]
                check_size(name, each, 2 * self.output_size)
            elif isinstance(value, list):
                check_size(name, each, self.output_size)
            check_number_of_stream(name, each)
        return context

    def labels_from_json(self, targets: list[Any], label: Any) -> tuple[list[float | None], list[float] | None]:
        """Return the targets of a row, and its label, that were saved as JSON.

        Raises:
            ValueError: they are nothing that `learn` and `label` return.
        """
        numbers, residuals = from_json(_TARGETS, targets), from_json(_LABEL, label)
        for values in (numbers, [0.0] * self.output_size if residuals is None else residuals):
            check_size("targets", values, self.output_size)
            check_number_of_stream("targets", [value for value in values if value is not None])
        return numbers, residuals

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
        """Return what was learned."""
        baseline = None if self.baseline is None else self.baseline.to_json()
        return SavedNumbers(self.moments.to_json(), self.last, baseline, dict(self.counts), self.intervals.to_json())

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
        if self.baseline is not None:
            self.baseline.restore(saved.baseline)
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
                    f"the target holds {repr(value)[:80]}, which is no number: nothing is learned from "
                    "this row, nor from later ones like it"
                )

    def _clip(self, number: float) -> float:
        """Return a number, or the bound if it lies beyond."""
        return self.moments.within(number, self.bound)


def number_predictions(context: NumberContext, output: np.ndarray) -> np.ndarray:
    """Return the numbers that an output of the network stands for, given what was known then."""
    return np.asarray(context.base) + np.asarray(context.scale) * np.asarray(output, np.float64)
