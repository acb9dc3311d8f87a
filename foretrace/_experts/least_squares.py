"""Recursive least squares with Huber weights, numerically safe over any number of rows.

    e     = y - f W,   w = min(1, c sigma / |e|)                    weight of an outlier (Huber)
    v     = P f,       u = v / sqrt(1 / w + f v)
    W     <- W + v e / (1 / w + f v)
    P     <- S (P - u u^T) S,   S_i = min(forget^{-1/2}, sqrt(prior / P_ii))

`P` is exactly symmetric, because every entry and its mirror image are the same products. It never
grows beyond its first trace, because no diagonal entry exceeds the prior: a direction that is not
excited forgets no further. Float64 is needed: `P` spans the squared condition number of the
features. K members share a recursion and forget by their own rows: the factor of a label is then
forget^{1/K}.

Outputs share `P`, and with it the mean of their weights. Sources: Ljung and Soderstrom, Theory and
practice of recursive identification, 1983; Huber, Robust statistics, 1981.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax

from foretrace._covariance import forgotten, products
from foretrace._experts.answer import Answer, Numbers
from foretrace._experts.error_scale import ErrorScale, learned_error, new_error_scale
from foretrace._experts.expert import AbstractExpert, Features, Lesson
from foretrace._types import Array, Bool, Float

_HUBER = 1.5
RAW_PRIORS = {"raw_row": 100.0, "raw_lags": 1.0}
"""Variance of a coefficient before its feature's first row, times the feature's mean square, in
variances of the noise. Many features at once need the stronger prior in the first rows."""

_FARTHEST = 1e4
"""Distance from the first label beyond which a prediction is not believed, in the largest of any
label so far."""

_SMALLEST = 1e-8
"""Smallest mean square of a raw feature that its prior follows, in its first square."""

_ROUNDING = 16 * float(np.finfo(np.float64).eps)


class SquaresState(NamedTuple):
    """State of one recursion for each set of features.

    Args:
        covariances: inverse of the weighted second moments of the features of each set.
        weights: coefficients of each output, for each set.
        scale: scale of the error of each output, for each set.
        num_labels: number of labels.
    """

    covariances: tuple[Float[Array, "F F"], ...]
    weights: tuple[Float[Array, "F O"], ...]
    scale: ErrorScale
    num_labels: Float[Array, ""]


class Recursion(eqx.Module):
    """The recursion of the head of this module, on each set of features apart.

    Numbers that every set has for each output lie beside each other: a program of few large steps
    is faster, and compiles faster, than one of many small ones.

    Args:
        sizes: number of features of each set.
        outputs: number of outputs.
        forget: factor by which old rows lose weight with every label.
        prior: variance of a coefficient before the first row.
        robust: whether outliers have smaller weights.
    """

    sizes: tuple[int, ...] = eqx.field(static=True)
    outputs: int = eqx.field(static=True)
    forget: float = eqx.field(static=True, default=0.9995)
    prior: float = eqx.field(static=True, default=1.0)
    robust: bool = eqx.field(static=True, default=True)

    def init(self) -> SquaresState:
        """Return the state before the first row."""
        return SquaresState(
            tuple(self.prior * jnp.eye(size) for size in self.sizes),
            tuple(jnp.zeros((size, self.outputs)) for size in self.sizes),
            new_error_scale(jnp.zeros((len(self.sizes), self.outputs))),
            jnp.zeros(()),
        )

    def learn(
        self,
        state: SquaresState,
        fs: tuple[Float[Array, "F"], ...],
        y: Float[Array, "O"],
        known: Bool[Array, ""],
        members: Float[Array, ""] | None = None,
        largest: tuple[Float[Array, "F"], ...] | None = None,
    ) -> SquaresState:
        """Return the state after the targets of a row; as it was if they are not known.

        Args:
            state: state before them.
            fs: features of each set.
            y: targets.
            known: whether they are known.
            members: number of members that share the recursion; None for one.
            largest: largest variance of each coefficient of each set. Default: the prior.
        """
        Ps, Ws = state.covariances, state.weights
        errors = y[None] - jnp.stack([f @ W for f, W in zip(fs, Ws, strict=True)])
        absolute = jnp.abs(errors)
        taken = known.astype(errors.dtype)
        count = state.num_labels + taken
        is_settled = state.num_labels >= 10
        limit = jnp.where(is_settled, _HUBER * state.scale.size, jnp.inf)
        inverse = (
            jnp.maximum(absolute / jnp.maximum(limit, 1e-12), 1.0)
            if self.robust
            else jnp.ones_like(absolute)
        )
        vs = [products(P, f[None]) for P, f in zip(Ps, fs, strict=True)]
        powers = jnp.stack([jnp.maximum(f @ v[:, 0], 0.0) for f, v in zip(fs, vs, strict=True)])
        if largest is not None:
            # No row counts more than rounding lets it: these features have no bound.
            sizes = _ROUNDING * np.array(self.sizes)
            inverse = jnp.maximum(inverse, (sizes * powers)[:, None])
        steps = taken * errors / (inverse + powers[:, None])
        roots = jnp.sqrt(inverse.mean(axis=1) + powers)
        growth = 1 / self.forget if members is None else (1 / self.forget) ** (1 / members)
        scale = learned_error(
            state.scale, absolute, 5.0, taken / jnp.clip(count, 1.0, 300.0), is_settled
        )
        Ws = tuple(W + v * step[None] for W, v, step in zip(Ws, vs, steps, strict=True))
        Ys: Any = tuple(v / root for v, root in zip(vs, roots, strict=True))
        limits: Any = (self.prior,) * len(Ps)
        more = None
        if largest is not None:
            more, limits = 0.0, tuple(2 * most for most in largest)
            parts = zip(Ps, Ws, Ys, largest, strict=True)
            Ws, Ys = zip(*(_recalled(*part, growth, known) for part in parts), strict=True)
        return SquaresState(
            tuple(
                forgotten(P, Y, growth=growth, largest=most, known=known, more=more)
                for P, Y, most in zip(Ps, Ys, limits, strict=True)
            ),
            Ws,
            scale,
            count,
        )


def _recalled(
    P: Float[Array, "F F"],
    W: Float[Array, "F O"],
    Y: Float[Array, "F 1"],
    largest: Float[Array, "F"],
    growth: Any,
    known: Bool[Array, ""],
) -> tuple[Float[Array, "F O"], Float[Array, "F 2"]]:
    """Return coefficients and factors after one is recalled from which all has been forgotten.

    The coefficient whose variance exceeds the largest one the most is observed to be 0, with the
    weight that leaves this variance: what is forgotten goes back to the prior.
    """
    left = growth * (jnp.diagonal(P) - Y[:, 0] ** 2)
    at = jnp.argmax(left / jnp.where(largest > 0, largest, jnp.inf)).astype(jnp.int32)
    most = left[at]
    column = growth * (P[at] - Y[:, 0] * Y[at, 0])
    is_beyond = known & (most > largest[at])
    share = jnp.where(is_beyond, (most - largest[at]) / jnp.where(is_beyond, most * most, 1.0), 0.0)
    factor = column * jnp.sqrt(share / growth)
    return W - share * column[:, None] * W[at][None], jnp.concatenate([Y, factor[:, None]], axis=1)


class Squares(AbstractExpert):
    """Least squares on sets of features, on each target of a label.

    Args:
        sets: sets of features, fields of `Features`.
        sizes: number of features of each.
        answer: what is predicted.
        of_events: whether labels count only while unusual rows are known; without them the features
            are zero, and each expert predicts as before its first label.
    """

    sets: tuple[str, ...] = eqx.field(static=True)
    sizes: tuple[int, ...] = eqx.field(static=True)
    answer: Answer
    of_events: bool = eqx.field(static=True, default=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each expert."""
        return tuple(one for name in _titles(self.sets) for one in self.answer.names(name))

    @property
    def recursion(self) -> Recursion:
        """The recursion of the experts of each set."""
        if isinstance(self.answer, Numbers):
            return Recursion(self.sizes, self.answer.width, prior=0.1)
        return Recursion(self.sizes, self.answer.width, robust=False)

    def init(self) -> SquaresState:
        """Return the state before the first row."""
        return self.recursion.init()

    def predict(self, state: SquaresState, features: Features) -> Float[Array, "E O"]:
        """Return the numbers for each step ahead, or the probabilities of the classes."""
        pairs = zip(_sets(self.sets, features), state.weights, strict=True)
        return self.answer.read(jnp.stack([f @ W for f, W in pairs]), features)

    def learn(self, state: SquaresState, lesson: Lesson) -> SquaresState:
        """Return the state after a label."""
        targets = self.answer.targets(lesson.label, lesson.features)
        fs, known = _sets(self.sets, lesson.features), lesson.known
        if not self.of_events:
            return self.recursion.learn(state, fs, targets, known, lesson.members)
        known = known & lesson.features.has_events
        given = fs, targets, known, lesson.members
        return lax.cond(known, lambda: self.recursion.learn(state, *given), lambda: state)


class RawState(NamedTuple):
    """State of least squares without units.

    Args:
        squares: state of the recursion.
        origins: first value of each feature of each set; NaN before it.
        powers: mean square of each feature, from its origin; 0 while all values were the same.
        first: its first square that is not 0.
        base: first label; NaN before it.
        widest: largest distance of a label from it.
    """

    squares: SquaresState
    origins: tuple[Float[Array, "F"], ...]
    powers: tuple[Float[Array, "F"], ...]
    first: tuple[Float[Array, "F"], ...]
    base: Float[Array, ""]
    widest: Float[Array, ""]


class RawSquares(AbstractExpert):
    """Least squares on numbers as they are, which no unit, shift or clipping changes.

        f_i  <- f_i - (its first value),    y <- y - (its first value)
        p_i  <- forget p_i + (1 - forget) f_i^2            from the first f_i^2 > 0 on
        P_ii <= prior / min(p_i, first f_i^2)              and equal to it at that row

    Where forgetting raises P_ii above its bound, nothing is left of what the rows said of W_i: it
    is observed once more to be 0, with the weight that brings P_ii back. If P_ii were scaled down
    and W_i kept, W would drift without end where rows tell nothing: a column that changes once a
    year would be extrapolated from that.

    A coefficient belongs to a unit: in running units, all of them would be wrong after each change
    of a level or a scale. Here the prior alone depends on the size of a feature, relative to its
    own past, so that the recursion is the same in any unit up to rounding. One broken reading
    spoils it for long: `Squares` is its robust sibling, and the mixture chooses.

    Source: Ross, Mineiro and Langford, Normalized online learning, UAI 2013, for priors without
        units.

    Args:
        sets: sets of features, fields of `Features` among `RAW_PRIORS`.
        sizes: number of features of each.
        outputs: number of steps ahead.
        fixed: number of features, the first ones, that have a unit: a constant, indicators, times.
    """

    sets: tuple[str, ...] = eqx.field(static=True)
    sizes: tuple[int, ...] = eqx.field(static=True)
    outputs: int = eqx.field(static=True)
    fixed: int = eqx.field(static=True)

    @property
    def names(self) -> tuple[str, ...]:
        """Name of each expert."""
        return _titles(self.sets)

    @property
    def recursion(self) -> Recursion:
        """The recursion of the expert of each set."""
        return Recursion(self.sizes, self.outputs, robust=False)

    def init(self) -> RawState:
        """Return the state before the first row."""
        has_unit = [np.arange(size) < self.fixed for size in self.sizes]
        units = tuple(jnp.asarray(one.astype(float)) for one in has_unit)
        priors = (
            RAW_PRIORS[name] * jnp.diag(unit) for name, unit in zip(self.sets, units, strict=True)
        )
        return RawState(
            self.recursion.init()._replace(covariances=tuple(priors)),
            tuple(jnp.asarray(np.where(one, 0.0, np.nan)) for one in has_unit),
            units,
            units,
            jnp.asarray(np.nan),
            jnp.zeros(()),
        )

    def predict(self, state: RawState, features: Features) -> Float[Array, "E O"]:
        """Return the numbers for each step ahead."""
        mean, scale = features.moments
        fs = self._centred(state.origins, features)
        found = jnp.stack([f @ W for f, W in zip(fs, state.squares.weights, strict=True)])
        # A broken reading gives numbers that no label has come near: the mean is a better answer.
        is_near = (jnp.abs(found) <= _FARTHEST * state.widest) & ~jnp.isnan(state.base)
        return (jnp.where(is_near, found + state.base, mean) - mean) / scale

    def learn(self, state: RawState, lesson: Lesson) -> RawState:
        """Return the state after a label."""
        features, known = lesson.features, lesson.known
        mean, scale = features.moments
        label = mean + scale * lesson.label
        base = jnp.where(known & jnp.isnan(state.base), label[0], state.base)
        label = jnp.where(known, label - base, 0.0)
        origins = tuple(
            jnp.where(known & jnp.isnan(origin), f, origin)
            for f, origin in zip(_sets(self.sets, features), state.origins, strict=True)
        )
        fs = self._centred(origins, features)
        followed = [
            self._followed(name, jnp.where(known, f * f, 0.0), known, *parts)
            for name, f, *parts in zip(
                self.sets, fs, state.powers, state.first, state.squares.covariances, strict=True
            )
        ]
        powers, first, largest, covariances = (tuple(part) for part in zip(*followed, strict=True))
        squares = self.recursion.learn(
            state.squares._replace(covariances=covariances),
            fs,
            label,
            known,
            lesson.members,
            largest,
        )
        widest = jnp.maximum(state.widest, jnp.abs(label).max())
        return RawState(squares, origins, powers, first, base, widest)

    def _followed(
        self, name: str, square: Array, known: Array, power: Array, first: Array, P: Array
    ) -> tuple[Array, Array, Array, Array]:
        """Return mean squares, first squares, largest variances, and P with new features."""
        begins = (first == 0) & (square > 0)
        forget = self.recursion.forget
        moves = known & (np.arange(len(power)) >= self.fixed)
        moved = jnp.where(moves, forget * power + (1 - forget) * square, power)
        power, first = jnp.where(begins, square, moved), jnp.where(begins, square, first)
        # Not below the variance that it began with: rows may tell features apart in less of their
        # size than the prior of a larger size would allow, as a counter from the last target.
        size = jnp.clip(power, _SMALLEST * first, first)
        largest = jnp.where(first > 0, RAW_PRIORS[name] / jnp.where(first > 0, size, 1.0), 0.0)
        return power, first, largest, P + jnp.diag(jnp.where(begins, largest, 0.0))

    def _centred(
        self, origins: tuple[Float[Array, "F"], ...], features: Features
    ) -> tuple[Float[Array, "F"], ...]:
        """Return features less their first values; 0 where there is none."""
        pairs = zip(_sets(self.sets, features), origins, strict=True)
        return tuple(jnp.nan_to_num(f - origin) for f, origin in pairs)


def _sets(names: tuple[str, ...], features: Features) -> tuple[Float[Array, "F"], ...]:
    """Return sets of features by their names."""
    return tuple(getattr(features, name) for name in names)


def _titles(sets: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of sets of features as experts are called by them."""
    return tuple(name.replace("_", " ") for name in sets)
