"""Sizes of a stream's rows, and of the feature sets that follow from them."""

import dataclasses

import numpy as np

LAGS = 112
"""Number of features for the row, rows before it and their labels."""

MAX_COEFFICIENTS = 2**14
"""Maximum number of coefficients of an expert; a larger expert is left out."""

SHORT = 48
"""Number of features for the row and the rows just before it; the row itself always fits."""

WIDE = 160
"""Number of random features."""

EVENTS = 112
"""Number of features for the row and the last unusual rows, at least one of these."""

MAX_EVENTS = 3
"""Maximum number of unusual rows that are remembered."""

STEPS = 5
"""Number of thresholds for each number of the row, with a soft step at each."""

LABELS, CLASS_LABELS = 400, 24
"""Number of remembered labels: of numbers, among which a season is searched, and of classes.

For classes, it is a minimum.
"""

MAX_ROW, PROJECTED_ROW = 96, 64
"""Maximum number of inputs without a projection, and number of features of a projection."""

FOLDED = 8
"""Number of inputs into which columns that appear later are added."""

MAX_LAGGED = 24
"""Maximum number of features of an earlier row. If there are more, they are projected at random."""

CATEGORIES, MAX_CATEGORY = 8, 4
"""Number of features of an earlier row for all categories, and maximum for one column."""


MOST_WORDS = 512
"""Maximum number of inputs for words that are read in one row: those with the largest counts."""


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of a stream's rows, labels and members, from which experts and network are made.

    Args:
        inputs: number of inputs of a row, without the inputs of the last known label.
        lagged: places of the numbers whose earlier values are features.
        outputs: number of predicted numbers, or maximum number of classes.
        classes: whether a class is predicted.
        delay: number of rows after which a label arrives.
        members: maximum number of streams, each with its own past. Default: one stream.
        previous: whether earlier labels are features.
        has_network: whether a recurrent network is among the experts.
        used: number of inputs, counted from the first, that were in use when the stream began.
            Default: all.
        categories: place and number of the indicators of each categorical column. Each earlier
            value is represented by a few features.
        words: number of inputs for words. They are the last inputs, and only the experts for words
            and a network read them.
        begun_with: maximum number of classes when the stream began, which determines features and
            experts. Default: `outputs`.
        raw: whether unscaled numbers are also features.
        ahead: whether to predict the targets of the following rows, instead of the row's own
            target.
        masks: whether an outlier counts as missing. If not, it is clipped.
        sentinels: whether a far label that repeats exactly counts as missing.
        coverage: fraction of the numbers that the intervals around predictions should contain.
        alarms: for each class with an alarm, the probability above which a row is marked.
        at_least: lower bound of predictions and of the ends of their intervals. Default: none.
        waiting: maximum number of rows that wait for labels which arrive in any order. 0 if each
            label arrives with the row `delay` rows after its own row.
        outside: names of the columns that hold predictions of other models.
    """

    inputs: int
    lagged: tuple[int, ...]
    outputs: int
    classes: bool = False
    delay: int = 0
    members: int | None = None
    previous: bool = True
    has_network: bool = False
    used: int | None = None
    categories: tuple[tuple[int, int], ...] = ()
    words: int = 0
    begun_with: int | None = None
    raw: bool = False
    ahead: bool = False
    masks: bool = False
    sentinels: bool = True
    coverage: float = 0.9
    alarms: tuple[float, ...] = ()
    at_least: float | None = None
    waiting: int = 0
    outside: tuple[str, ...] = ()

    @property
    def places(self) -> int:
        """Number of places in which rows wait for their labels, consecutive for each stream."""
        # One more than the number of waiting rows: a row is written before the oldest row is read,
        # at another place, so that the compiler need not copy all places to keep what is still to
        # be read.
        return self.waiting or (self.delay + 1) * (self.slots + 1) * (self.delay > 0)

    @property
    def horizon(self) -> int:
        """Number of steps ahead; 0 if a row's own label is predicted."""
        return self.outputs if not self.classes and (self.ahead or self.outputs > 1) else 0

    @property
    def is_late(self) -> bool:
        """Whether the next row may be predicted before the label of a row is learned."""
        return self.waiting > 0 or self.delay > (self.horizon > 0)

    @property
    def first_outputs(self) -> int:
        """Number of outputs that determines features and experts."""
        return self.begun_with or self.outputs

    @property
    def most_features(self) -> int:
        """Maximum number of features with which an expert has at most `MAX_COEFFICIENTS`."""
        return MAX_COEFFICIENTS // (self.first_outputs * (1 if self.classes else 2))

    @property
    def slots(self) -> int:
        """Number of streams that have their own past."""
        return self.members or 1

    @property
    def network_inputs(self) -> int:
        """Number of inputs of the network: a row and the last known label; 0 without a network.

        The expert for words also reads the other inputs of a row.
        """
        of_label = self.outputs if self.classes else 2
        if self.has_network:
            return self.inputs + of_label * self.previous
        return self.row_inputs if self.words else 0

    @property
    def first_delay(self) -> int | None:
        """Number of rows after which the label of the first step ahead arrives.

        The label of each further step arrives one row later. None if all labels of a row arrive
        together.
        """
        return None if self.classes or self.outputs == 1 else self.delay - self.outputs + 1

    @property
    def delays(self) -> np.ndarray:
        """Number of rows after which the label of each output arrives."""
        if self.first_delay is None:
            return np.full(1 if self.classes else self.outputs, self.delay)
        return self.first_delay + np.arange(self.outputs)

    @property
    def row_inputs(self) -> int:
        """Number of inputs of a row without its words."""
        return self.inputs - self.words

    @property
    def row_size(self) -> int:
        """Number of inputs of a row after the projection."""
        size = self.row_inputs if self.used is None else min(self.row_inputs, self.used + FOLDED)
        return size if size <= MAX_ROW else PROJECTED_ROW

    @property
    def category_size(self) -> int:
        """Features of an earlier category. Columns share `CATEGORIES`; each has at least one."""
        return min(max(CATEGORIES // max(len(self.categories), 1), 1), MAX_CATEGORY)

    @property
    def lagged_places(self) -> tuple[int, ...]:
        """Places of the inputs whose earlier values are features: numbers, then indicators."""
        return (*self.lagged, *(at + i for at, count in self.categories for i in range(count)))

    @property
    def lagged_values(self) -> int:
        """Number of features of an earlier row before the projection."""
        return len(self.lagged) + len(self.categories) * self.category_size

    @property
    def lagged_size(self) -> int:
        """Number of features of an earlier row, after the projection."""
        return min(self.lagged_values, MAX_LAGGED)

    @property
    def has_raw(self) -> bool:
        """Whether unscaled numbers, of rows or labels, are also features."""
        there = max(self.lagged, default=-1) < self.row_size
        return self.raw and there and not self.classes

    @property
    def num_raw(self) -> int:
        """Number of a row's numbers that are used unscaled as features; 0 if none."""
        return len(self.lagged) if self.has_raw else 0

    @property
    def raw_depth(self) -> int:
        """Number of earlier rows whose unscaled numbers are features."""
        return self.depth if self.has_raw and self.lagged_size == self.lagged_values else 0

    @property
    def now_size(self) -> int:
        """Number of inputs of a recurrent expert; 0 if the inputs of a row are projected."""
        if max(self.lagged_places, default=-1) >= self.row_size:
            return 0
        return self.lagged_size + self.code_size

    @property
    def code_size(self) -> int:
        """Number of features of one label."""
        if not self.previous:
            return 0
        outputs = self.first_outputs
        return 1 if not self.classes or outputs <= 2 else 4 if outputs <= 32 else 12

    @property
    def depth(self) -> int:
        """Number of earlier rows and labels among the lags."""
        return self._depth(min(LAGS, self.most_features))

    @property
    def num_labels(self) -> int:
        """Number of labels that are remembered."""
        return max(CLASS_LABELS, self.depth) if self.classes else LABELS

    @property
    def short_depth(self) -> int:
        """Number of earlier rows and labels among the short lags."""
        return min(self._depth(SHORT), self.depth, 3)

    @property
    def num_events(self) -> int:
        """Number of unusual rows that are remembered."""
        return min(max((EVENTS - self.size(0)) // (self.row_size + 1), 1), MAX_EVENTS)

    @property
    def events_size(self) -> int:
        """Number of features of the row and the unusual rows before it."""
        return self.size(0) + self.num_events * (self.row_size + 1)

    @property
    def has_steps(self) -> bool:
        """Whether the expert `steps` can be used.

        All unscaled numbers are then inputs of the row, and the soft steps of these numbers do not
        exceed the maximum number of features.
        """
        there = max(self.lagged, default=self.row_size) < self.row_size
        return there and self.steps_size <= WIDE

    @property
    def steps_size(self) -> int:
        """Number of features of the row and of the thresholds of its numbers."""
        return self.size(0) + self.code_size + len(self.lagged) * STEPS

    def size(self, depth: int) -> int:
        """Return the number of features: the row, `depth` earlier rows and labels, a constant."""
        return 1 + self.row_size + depth * (self.lagged_size + self.code_size)

    def _depth(self, size: int) -> int:
        each = self.lagged_size + self.code_size
        return max((size - 1 - self.row_size) // each, 1) if each else 0


def codes(shape: Shape) -> np.ndarray:
    """Return the features of each class: -1 and 1 for two classes, random signs for later ones.

    >>> codes(Shape(3, (), 2, classes=True)).tolist()
    [[-1.0], [1.0]]
    """
    out = (
        np.random.default_rng(1).choice([-1.0, 1.0], (shape.outputs, shape.code_size))
        / max(shape.code_size, 1) ** 0.5
    )
    if shape.classes and shape.first_outputs <= 32 and shape.code_size:
        out[:, 0] = 0.0
        out[:2] = 0.0
        out[:2, 0] = [-1.0, 1.0]
    return out


def category_codes(count: int, size: int) -> np.ndarray:
    """Return the features of each category: zeros for none, unit vectors, then random vectors.

    >>> category_codes(4, 2)[:3].tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    """
    out = np.random.default_rng(4).uniform(-1, 1, (count, size))
    out[: size + 1] = np.eye(size + 1, size, -1)[:count]
    return out
