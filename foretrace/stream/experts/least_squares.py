"""Recursive least squares with Huber weights, numerically stable over any number of rows.

    e     = y - f W,   w = min(1, c sigma / |e|)                    weight of an outlier (Huber)
    v     = P f,       u = v / sqrt(1 / w + f v)
    W     <- W + v e / (1 / w + f v)
    P     <- S (P - u u^T) S,   S_i = min(forget^{-1/2}, sqrt(prior / P_ii))

`P` is exactly symmetric, because every entry and its mirror image are computed as the same
products. Its trace never exceeds the initial trace, because no diagonal entry exceeds the prior:
along a direction that is not excited, nothing more is forgotten. Float64 is needed, because the
range of `P` is the squared condition number of the features. If K members share a recursion, each
member forgets by its own rows: the factor of a label is then forget^{1/K}.

The outputs share `P`, and therefore the mean of their weights.

Source: Ljung and Soderstrom, Theory and practice of recursive identification, 1983; Huber, Robust
    statistics, 1981.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import lax

from foretrace._covariance import forgotten, products
from foretrace._types import Array, Bool, Float
from foretrace.stream.experts.answer import Answer, Numbers
from foretrace.stream.experts.error_scale import ErrorScale, learned_error, new_error_scale
from foretrace.stream.experts.expert import AbstractExpert, Features, Lesson
from foretrace.stream.experts.settings import TUNED


class SquaresState(NamedTuple):
    """State of one recursion for each set of features.

    Args:
        covariances: for each set, the inverse of the weighted second moments of the features.
        weights: for each set, the coefficients of each output.
        scale: for each set, the scale of each output's error.
        num_labels: number of labels.
    """

    covariances: tuple[Float[Array, "F F"], ...]
    weights: tuple[Float[Array, "F O"], ...]
    scale: ErrorScale
    num_labels: Float[Array, ""]


class Recursion(eqx.Module):
    """The recursion in this file's docstring, for each feature set separately.

    Numbers that every set has for each output are adjacent in memory, because a program of a few
    large steps runs and compiles faster than a program of many small steps.

    Args:
        sizes: number of features of each set.
        outputs: number of outputs.
        forget: factor by which the weight of old rows is multiplied at every label.
        prior: variance of a coefficient before the first row.
        robust: whether outliers get smaller weights.
    """

    sizes: tuple[int, ...] = eqx.field(static=True)
    outputs: int = eqx.field(static=True)
    forget: float = eqx.field(static=True, default=TUNED.forget)
    prior: float = eqx.field(static=True, default=TUNED.prior)
    robust: bool = eqx.field(static=True, default=True)

    def init(self) -> SquaresState:
        """Return the state before the first row."""
        return SquaresState(
            covariances=tuple(self.prior * jnp.eye(size) for size in self.sizes),
            weights=tuple(jnp.zeros((size, self.outputs)) for size in self.sizes),
            scale=new_error_scale(jnp.zeros((len(self.sizes), self.outputs))),
            num_labels=jnp.zeros(()),
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
        """Return the state after the targets of a row. If they are not known, it is unchanged.

        Args:
            state: state before the row.
            fs: features of each set.
            y: targets.
            known: whether the targets are known.
            members: number of members that share the recursion. Default: one.
            largest: largest variance of each coefficient, for each set. Default: the prior.
        """
        Ps, Ws = state.covariances, state.weights
        errors = y[None] - jnp.stack([f @ W for f, W in zip(fs, Ws, strict=True)])
        taken = known.astype(errors.dtype)
        vs = [products(P, f[None]) for P, f in zip(Ps, fs, strict=True)]
        powers = jnp.stack([jnp.maximum(f @ v[:, 0], 0.0) for f, v in zip(fs, vs, strict=True)])
        priors = powers
        if largest is not None:
            priors = jnp.stack([f * f @ most for f, most in zip(fs, largest, strict=True)])
        inverse, scale = self.weighed(state, jnp.abs(errors), powers, priors, taken)
        steps = taken * errors / (inverse + powers[:, None])
        roots = jnp.sqrt(inverse.mean(axis=1) + powers)
        growth = 1 / self.forget if members is None else (1 / self.forget) ** (1 / members)
        Ws = tuple(W + v * step[None] for W, v, step in zip(Ws, vs, steps, strict=True))
        Ys: Any = tuple(v / root for v, root in zip(vs, roots, strict=True))
        limits: Any = (self.prior,) * len(Ps)
        more = None
        if largest is not None:
            more, limits = 0.0, tuple(2 * most for most in largest)
            parts = zip(Ps, Ws, Ys, largest, strict=True)
            Ws, Ys = zip(*(_recalled(*part, growth, known) for part in parts), strict=True)
        return SquaresState(
            covariances=tuple(
                forgotten(P, Y, growth=growth, largest=most, known=known, more=more)
                for P, Y, most in zip(Ps, Ys, limits, strict=True)
            ),
            weights=Ws,
            scale=scale,
            num_labels=state.num_labels + taken,
        )

    def weighed(
        self,
        state: SquaresState,
        errors: Float[Array, "S O"],
        powers: Float[Array, "S"],
        priors: Float[Array, "S"],
        taken: Float[Array, ""],
    ) -> tuple[Float[Array, "S O"], ErrorScale]:
        """Return the inverse of a row's weight, and the scale of the errors after the row.

        Args:
            state: state before the row.
            errors: absolute errors of each set.
            powers: variance of each prediction, f P f, relative to the variance of the noise.
            priors: variance of each prediction with the prior as P.
            taken: 1 if the label is known, else 0.
        """
        count, is_settled = state.num_labels + taken, state.num_labels >= 10
        rate = taken / jnp.clip(count, 1.0, TUNED.error_span)
        scale = learned_error(state.scale, errors, TUNED.error_clip, rate, is_settled)
        if not self.robust:
            return jnp.ones_like(errors), scale
        limit = jnp.where(is_settled, TUNED.huber * state.scale.size, jnp.inf)
        return jnp.maximum(errors / jnp.maximum(limit, 1e-12), 1.0), scale


def _recalled(
    P: Float[Array, "F F"],
    W: Float[Array, "F O"],
    Y: Float[Array, "F 1"],
    largest: Float[Array, "F"],
    growth: Any,
    known: Bool[Array, ""],
) -> tuple[Float[Array, "F O"], Float[Array, "F 2"]]:
    """Return coefficients and factors, in which one forgotten coefficient is restored.

    The coefficient whose variance exceeds its largest variance the most is treated as if it were
    observed to be 0, with the weight that leaves the largest variance. A forgotten coefficient thus
    returns to the prior.
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
    """Experts that learn each target of a label by least squares on sets of features.

    Args:
        sets: sets of features, which are fields of `Features`.
        sizes: number of features in each set.
        answer: kind of the targets.
        of_events: whether labels count only while unusual rows are known. Otherwise the features
            are zero, and each expert predicts as before its first label.
    """

    sets: tuple[str, ...] = eqx.field(static=True)
    sizes: tuple[int, ...] = eqx.field(static=True)
    answer: Answer
    of_events: bool = eqx.field(static=True, default=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the experts."""
        return tuple(one for name in titles(self.sets) for one in self.answer.names(name))

    @property
    def recursion(self) -> Recursion:
        """The recursion that the experts of all sets use."""
        if isinstance(self.answer, Numbers):
            return Recursion(self.sizes, self.answer.width, prior=TUNED.number_prior)
        return Recursion(self.sizes, self.answer.width, robust=False)

    def init(self) -> SquaresState:
        """Return the state before the first row."""
        return self.recursion.init()

    def predict(self, state: SquaresState, features: Features) -> Float[Array, "E O"]:
        """Return the numbers for each step ahead, or the probabilities of the classes."""
        pairs = zip(sets_of(self.sets, features), state.weights, strict=True)
        return self.answer.read(jnp.stack([f @ W for f, W in pairs]), features)

    def learn(self, state: SquaresState, lesson: Lesson) -> SquaresState:
        """Return the state after a label."""
        targets = self.answer.targets(lesson.label, lesson.features)
        fs, known = sets_of(self.sets, lesson.features), lesson.known
        if not self.of_events:
            return self.recursion.learn(state, fs, targets, known, lesson.members)
        known = known & lesson.features.has_events
        given = fs, targets, known, lesson.members
        return lax.cond(known, lambda: self.recursion.learn(state, *given), lambda: state)


def sets_of(names: tuple[str, ...], features: Features) -> tuple[Float[Array, "F"], ...]:
    """Return the sets of features with these names."""
    return tuple(getattr(features, name) for name in names)


def titles(sets: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the experts for sets of features."""
    return tuple(name.replace("_", " ") for name in sets)
