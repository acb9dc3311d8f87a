"""Least squares on unscaled numbers, for columns whose scale changes."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from foretrace._types import Array, Bool, Float
from foretrace.stream.experts.error_scale import ErrorScale, learned_error
from foretrace.stream.experts.expert import AbstractExpert, Features, Lesson
from foretrace.stream.experts.least_squares import Recursion, SquaresState, sets_of, titles
from foretrace.stream.experts.settings import TUNED

RAW_PRIORS = {"raw_row": TUNED.raw_row_prior, "raw_lags": TUNED.raw_lags_prior}
"""Variance of a coefficient before the first row of its feature.

It is in variances of the noise, and divided by the mean square of the feature. Many features at
once need the stronger prior in the first rows.
"""

_SMALLEST = 1e-8
"""Smallest mean square that limits a coefficient's variance, relative to the first square."""

_ROUNDING = 16 * float(np.finfo(np.float64).eps)
_TINY = float(np.finfo(np.float64).tiny)


class RawState(NamedTuple):
    """State of the least squares on unscaled numbers.

    Args:
        squares: state of the recursion. Its scale is the scale of the innovations.
        origins: first value of each feature in each set; NaN before the first value.
        powers: mean square of the difference of each feature from its origin; 0 while all values
            are equal.
        first: for each feature, its first such square that is not 0.
        base: mean of the labels before the first learned label; NaN before that label.
        widest: largest distance from the base of a label that was not an outlier.
        is_doubted: for each set, whether the last prediction far beyond `widest` was wrong.
    """

    squares: SquaresState
    origins: tuple[Float[Array, "F"], ...]
    powers: tuple[Float[Array, "F"], ...]
    first: tuple[Float[Array, "F"], ...]
    base: Float[Array, ""]
    widest: Float[Array, ""]
    is_doubted: Bool[Array, "S O"]


class RawRecursion(Recursion):
    """Recursion on unbounded features, in which a broken label or reading has a limited effect.

        e    = y - f W,   d = f P f,   d_0 = f P_0 f          P_0: the prior
        r    = |e| / sqrt(1 + d (1 + 1000 d / d_0))           size of the innovation
        1/w  = max(1, (1 + d) r / 4 s - d)                    inverse weight of the row
       s   <- running mean of min(r, 3 s)                    as in `error_scale`

    A broken reading makes both e and sqrt(d) huge. If the coefficient of its feature is known, e is
    by far the larger one, and the row is an outlier. If instead a column has reached a new level, e
    stays small. An outlier moves the coefficients as far as an innovation at the limit would. After
    30 consecutive outliers, s is set to their mean size.

    Source of the weight: Huber, Robust statistics, 1981.
    """

    def weighed(
        self,
        state: SquaresState,
        errors: Float[Array, "S O"],
        powers: Float[Array, "S"],
        priors: Float[Array, "S"],
        taken: Float[Array, ""],
    ) -> tuple[Float[Array, "S O"], ErrorScale]:
        """Return the inverse of a row's weight, and the scale of the innovations after the row."""
        d, before = powers[:, None], state.scale
        unknown = (powers / jnp.maximum(priors, _TINY))[:, None]
        sizes = errors / jnp.sqrt(1 + d * (1 + TUNED.weaker * unknown))
        ratio = sizes / jnp.maximum(TUNED.raw_limit * before.size, _TINY)
        inverse = jnp.maximum((1 + d) * ratio - d, 1.0)
        # The weight of a row is limited by rounding.
        inverse = jnp.maximum(inverse, _ROUNDING * np.array(self.sizes)[:, None] * d)
        # The initial scale is the deviation of the first labels, which counts as one error.
        rate, always = (
            taken / jnp.clip(state.num_labels + 1 + taken, 1.0, TUNED.error_span),
            jnp.ones((), bool),
        )
        return inverse, learned_error(before, sizes, TUNED.raw_clip, rate, always, least=0.0)


class RawSquares(AbstractExpert):
    """Least squares on unscaled numbers. Any unit or shift of a column gives the same predictions.

        f_i  <- f_i - (its first value),    y <- y - (mean of the first labels)
        p_i  <- forget p_i + (1 - forget) f_i^2            from the first f_i^2 > 0 on
        P_ii <= prior / min(p_i, first f_i^2)              and equal to it at that row

    If forgetting raises P_ii above its bound, all information about W_i is lost. W_i is then
    treated as if it were once more observed to be 0, with the weight that brings P_ii back to the
    bound. If P_ii were instead scaled down and W_i kept, W would drift without limit along
    directions that rows do not determine: a column that changes once a year would be extrapolated
    from this change.

    A coefficient belongs to a unit. If features were in running units, all coefficients would be
    wrong after each change of a level or a scale. Here only the prior depends on the size of a
    feature, relative to the feature's own past, so the recursion is the same in any unit up to
    rounding.

    After a broken reading, the prediction is equally far off. The mean replaces a prediction that
    lies beyond 300 times the largest label that was predicted right. Once such a prediction was
    wrong, the limit is twice that label.

    Source of the priors without units: Ross, Mineiro and Langford, Normalized online learning, UAI
    2013.

    Args:
        sets: sets of features, which are fields of `Features` among `RAW_PRIORS`.
        sizes: number of features in each set.
        outputs: number of steps ahead.
        fixed: number of features, counted from the first, that have a fixed unit: a constant,
            indicators, times.
    """

    sets: tuple[str, ...] = eqx.field(static=True)
    sizes: tuple[int, ...] = eqx.field(static=True)
    outputs: int = eqx.field(static=True)
    fixed: int = eqx.field(static=True)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the experts."""
        return titles(self.sets)

    @property
    def recursion(self) -> RawRecursion:
        """The recursion that the experts of all sets use."""
        return RawRecursion(self.sizes, self.outputs)

    def init(self) -> RawState:
        """Return the state before the first row."""
        has_unit = [np.arange(size) < self.fixed for size in self.sizes]
        units = tuple(jnp.asarray(one.astype(float)) for one in has_unit)
        priors = (
            RAW_PRIORS[name] * jnp.diag(unit) for name, unit in zip(self.sets, units, strict=True)
        )
        return RawState(
            squares=self.recursion.init()._replace(covariances=tuple(priors)),
            origins=tuple(jnp.asarray(np.where(one, 0.0, np.nan)) for one in has_unit),
            powers=units,
            first=units,
            base=jnp.asarray(np.nan),
            widest=jnp.zeros(()),
            is_doubted=jnp.zeros((len(self.sets), self.outputs), bool),
        )

    def predict(self, state: RawState, features: Features) -> Float[Array, "E O"]:
        """Return the numbers for each step ahead."""
        mean, scale = features.moments
        fs = self._centred(state.origins, features)
        found = jnp.stack([f @ W for f, W in zip(fs, state.squares.weights, strict=True)])
        limit = jnp.where(state.is_doubted, TUNED.doubted, TUNED.farthest) * state.widest
        is_near = (jnp.abs(found) <= limit) & ~jnp.isnan(state.base)
        return (jnp.where(is_near, found + state.base, mean) - mean) / scale

    def learn(self, state: RawState, lesson: Lesson) -> RawState:
        """Return the state after a label."""
        features, known = lesson.features, lesson.known
        mean, scale = features.moments
        label = mean + scale * lesson.label
        begins = known & jnp.isnan(state.base)
        base = jnp.where(begins, features.ordinary[0], state.base)
        widest = jnp.where(begins, features.ordinary[1], state.widest)
        limit = TUNED.farthest * widest
        label = jnp.where(known, jnp.clip(label - base, -limit, limit), 0.0)
        origins = tuple(
            jnp.where(known & jnp.isnan(origin), f, origin)
            for f, origin in zip(sets_of(self.sets, features), state.origins, strict=True)
        )
        fs = self._centred(origins, features)
        followed = [
            self._followed(name, jnp.where(known, f * f, 0.0), known, *parts)
            for name, f, *parts in zip(
                self.sets, fs, state.powers, state.first, state.squares.covariances, strict=True
            )
        ]
        seen, variances = zip(*followed, strict=True)
        powers, first = zip(*seen, strict=True)
        largest, covariances = zip(*variances, strict=True)
        before = state.squares.scale
        before = before._replace(size=jnp.where(begins, features.ordinary[1], before.size))
        squares = self.recursion.learn(
            state.squares._replace(covariances=covariances, scale=before),
            fs,
            label,
            known,
            lesson.members,
            largest,
        )
        is_wrong, size = squares.scale.run > 0, jnp.abs(label)
        found = jnp.stack([jnp.abs(f @ W) for f, W in zip(fs, state.squares.weights, strict=True)])
        judged = known & (found > TUNED.doubted * widest) & (size <= TUNED.doubted * widest)[None]
        is_doubted = jnp.where(judged, is_wrong, state.is_doubted)
        inside = jnp.where(known & ~is_wrong.all(axis=0), size, 0.0).max()
        widest = jnp.maximum(widest, inside)
        return RawState(
            squares=squares,
            origins=origins,
            powers=powers,
            first=first,
            base=base,
            widest=widest,
            is_doubted=is_doubted,
        )

    def _followed(
        self, name: str, square: Array, known: Array, power: Array, first: Array, P: Array
    ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        """Return mean and first squares, and largest variances and P, after features changed."""
        begins = (first == 0) & (square > 0)
        forget = self.recursion.forget
        moves = known & (np.arange(len(power)) >= self.fixed)
        moved = jnp.where(moves, forget * power + (1 - forget) * square, power)
        power, first = jnp.where(begins, square, moved), jnp.where(begins, square, first)
        # Not below the initial variance: rows may distinguish features by smaller differences than
        # the prior of a larger size would allow, for example a counter from the last target.
        size = jnp.clip(power, _SMALLEST * first, first)
        largest = jnp.where(first > 0, RAW_PRIORS[name] / jnp.where(first > 0, size, 1.0), 0.0)
        return (power, first), (largest, P + jnp.diag(jnp.where(begins, largest, 0.0)))

    def _centred(
        self, origins: tuple[Float[Array, "F"], ...], features: Features
    ) -> tuple[Float[Array, "F"], ...]:
        """Return the features minus their first values; 0 if no first value is known."""
        pairs = zip(sets_of(self.sets, features), origins, strict=True)
        return tuple(jnp.nan_to_num(f - origin) for f, origin in pairs)
