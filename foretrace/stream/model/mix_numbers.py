"""Mixture for numbers: convex combinations that follow the smallest absolute error.

Weights are learned in two ways, each at several rates and shares. All combinations and the
baselines are mixed once more at the top:

    combined    v <- v exp(-rate g)    g_e = sign(m - y) (p_e - m) / u    (exponentiated gradient)
    own         v <- v exp(-rate l)    l_e = |p_e - y| / u                (exponential weights)
    shared      v <- (1 - share) v + share prior                          (fixed share)
                m = sum_e v_e p_e

The top chooses quickly between its candidates, and its choice varies. Its prediction t is therefore
averaged with all experts once more, by weights that slowly follow the smallest squared error:

    last        w <- w exp(-rate h)    h_i = ((m - y) / u) (x_i - m) / u    (exponentiated gradient)
                m = sum_i w_i x_i      x = (t, p_1, ..., p_E)

u is the scale of the error of the top, so the unit of the numbers does not matter. Half of the
prior lies on the baselines. In the last average, nine tenths of the prior lie on t. In each sum,
predictions are clipped at a distance of 8 u from the middle. The loss is bounded at the same
distance, and otherwise an expert with a tiny weight and an error a thousand times larger would
determine the sum. The middle is the prediction with the largest sum of weights within 8 u.

Labels may arrive late. At the top, a combination is therefore judged by the prediction that it made
for the row of the label. Its present weights have already seen the labels of the rows in between.
If it were judged by these weights, the combination that follows the last labels most closely would
win. The errors of `late` consecutive rows count as one piece of evidence: the rates of the top and
of the first way, and all shares, are divided by 1 + late. Each step ahead has its own lateness.

A burst of errors may end before its labels arrive. Weights that follow the burst are then wrong
twice. The rate of the top is therefore at most u / gap (AdaHedge):

    gap   <- (1 - 1 / (200 (1 + late))) gap + u (s(overlap) - s(1))
    s(k)   = log(sum_c v_c exp(-k rate l_c)) / (k rate)    l_c = loss of candidate c above the least

The errors of `overlap` consecutive rows overlap: `late` rows, and at least one. The second term is
the loss that these rows, taken as one label, would add to mixing by single labels. It is zero if
labels are 0 or 1 rows late, and so is the gap. Losses are bounded at 8 `overlap`, so a late label
may move the top as far as a label that is not late.

Sources: Kivinen and Warmuth, Information and Computation 132(1), 1997; Herbster and Warmuth,
    Machine Learning 32, 1998; Joulani, Gyorgy and Szepesvari, Online learning under delayed
    feedback, ICML 2013; de Rooij et al., Follow the leader if you can, hedge if you must, Journal
    of Machine Learning Research 15, 2014.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from foretrace._types import Array, Bool, Float
from foretrace.stream.experts.error_scale import ErrorScale, learned_error, new_error_scale
from foretrace.stream.experts.settings import TUNED

_LEAST = 1e-6
"""Fraction of a weight that decides between predictions of the same support."""


class NumberWeights(NamedTuple):
    """Weights of the mixture.

    Args:
        experts: weight of each expert in each combination, for each step ahead. These are not
            logarithms, because the shares keep weights far above zero, and predictions need no
            exponentials.
        top: weight of each baseline and of each combination.
        last: weight of the top's prediction and of each expert.
        unit: scale of the error of the top at each step ahead. Unlike all other values, it is not
            in standard deviations, because these may change by any factor from one row to the next.
        recent: mean error of the last labels, in the same unit.
        num_labels: number of labels of each step ahead.
        gap: loss that late labels add to mixing, in the same unit.
    """

    experts: Float[Array, "O M E"]
    top: Float[Array, "O C"]
    last: Float[Array, "O E+1"]
    unit: ErrorScale
    recent: Float[Array, "O"]
    num_labels: Float[Array, "O"]
    gap: Float[Array, "O"]


class NumberMixture(eqx.Module):
    """The mixture in this file's docstring.

    Args:
        experts: number of experts, of which the first ones are the baselines.
        baselines: number of baselines.
        outputs: number of steps ahead.
    """

    experts: int = eqx.field(static=True)
    baselines: int = eqx.field(static=True)
    outputs: int = eqx.field(static=True)

    @property
    def num_candidates(self) -> int:
        """Number of candidate predictions, including the chosen one."""
        return self.baselines + 2 * len(TUNED.number_rates) * len(TUNED.number_shares) + 1

    def init(self) -> NumberWeights:
        """Return the state before the first row."""
        combinations = 2 * len(TUNED.number_rates) * len(TUNED.number_shares)
        experts = _prior(self.baselines, self.experts - self.baselines)
        top = _prior(self.baselines, combinations)
        return NumberWeights(
            experts=jnp.asarray(np.tile(experts, (self.outputs, combinations, 1))),
            top=jnp.asarray(np.tile(top, (self.outputs, 1))),
            last=jnp.asarray(np.tile(self._last_prior, (self.outputs, 1))),
            unit=new_error_scale(jnp.zeros(self.outputs)),
            recent=jnp.zeros(self.outputs),
            num_labels=jnp.zeros(self.outputs),
            gap=jnp.zeros(self.outputs),
        )

    def predict(
        self,
        state: NumberWeights,
        predicted: Float[Array, "E O"],
        moments: Float[Array, "2"],
    ) -> tuple[Float[Array, "O"], Float[Array, "T O"]]:
        """Return the mixed prediction for each step ahead, and the candidates, the chosen one last.

        Args:
            state: present state.
            predicted: predictions of the experts in standard deviations.
            moments: present mean and standard deviation.
        """
        mean, deviation = moments
        reach = self._reach(state, deviation)
        candidates = self._candidates(state, predicted.T, reach)
        chosen = _mean(state.top[:, None], candidates, reach)
        averaged = jnp.concatenate([chosen, predicted.T], axis=1)
        made = jnp.concatenate([candidates, chosen], axis=1)
        mixed = _mean(state.last[:, None], averaged, reach)[:, 0]
        return mean + deviation * mixed, made.T

    def filled(
        self,
        state: NumberWeights,
        predicted: Float[Array, "E O"],
        moments: Float[Array, "2"],
    ) -> Float[Array, "E O"]:
        """Return predictions with the weighted mean of the others where one is missing (NaN)."""
        missing = jnp.isnan(predicted)
        weights = jnp.where(missing, 0.0, self.weights(state)).T
        weights = weights / weights.sum(axis=1, keepdims=True)
        values = jnp.where(missing, 0.0, predicted).T
        mean = _mean(weights[:, None], values, self._reach(state, moments[1]))[:, 0]
        return jnp.where(missing, mean[None], predicted)

    def _reach(self, state: NumberWeights, deviation: Array) -> Float[Array, "O"]:
        """Return the distance at which predictions are clipped in a mean, in deviations."""
        size = _scale(state.unit, state.recent)
        return jnp.where(state.num_labels > 0, TUNED.clip * size / deviation, jnp.inf)

    @property
    def _last_prior(self) -> Float[np.ndarray, "E+1"]:
        others = np.full(self.experts, (1 - TUNED.last_prior) / self.experts)
        return np.concatenate([[TUNED.last_prior], others])

    def _candidates(
        self,
        state: NumberWeights,
        predicted: Float[Array, "O E"],
        reach: Float[Array, "O"],
    ) -> Float[Array, "O C"]:
        combinations = _mean(state.experts, predicted, reach)
        return jnp.concatenate([predicted[:, : self.baselines], combinations], axis=1)

    def weights(self, state: NumberWeights) -> Float[Array, "E O"]:
        """Return the weight of each expert in the mixture."""
        own, others = state.top[:, : self.baselines], state.top[:, self.baselines :]
        found = jnp.einsum("om,ome->oe", others, state.experts)
        found = found.at[:, : self.baselines].add(own)
        return (state.last[:, :1] * found + state.last[:, 1:]).T

    def learn(
        self,
        state: NumberWeights,
        predicted: Float[Array, "E O"],
        candidates: Float[Array, "T O"],
        label: Float[Array, "O"],
        known: Bool[Array, "*O"],
        moments: Float[Array, "*O 2"],
        late: Any = 0.0,
    ) -> NumberWeights:
        """Return the state after labels; unchanged for steps ahead whose label is unknown.

        Args:
            state: state before the labels.
            predicted: predictions of the experts for the rows of these labels, in standard
                deviations.
            candidates: candidates that `predict` returned for these rows.
            label: label of each step ahead, in standard deviations.
            known: whether the labels are known.
            moments: mean and standard deviation at the time when the row was predicted.
            late: number of rows by which the label of each step ahead, or of all steps, is late.
        """
        counted = 1.0 + late * np.ones(self.outputs)
        predicted, candidates, deviation = predicted.T, candidates.T, moments[..., 1]
        candidates, chosen = candidates[:, :-1], candidates[:, -1:]
        known = jnp.broadcast_to(known, label.shape)
        rates, shares = _settings(counted)
        reach = self._reach(state, deviation)
        now = self._candidates(state, predicted, reach)
        error = jnp.abs(_mean(state.top[:, None], now, reach)[:, 0] - label)
        taken = known.astype(error.dtype)
        count = state.num_labels + taken
        rate = taken / jnp.clip(count, 1.0, TUNED.number_span)
        unit = learned_error(
            state.unit, error * deviation, TUNED.unit_clip, rate, state.num_labels > 0
        )
        inside = jnp.minimum(error * deviation, TUNED.unit_clip * unit.size)
        fast = taken / jnp.clip(count, 1.0, TUNED.recent * counted)
        recent = state.recent + (inside - state.recent) * fast
        size = jnp.maximum(_scale(unit, recent), 1e-9 * deviation)
        scale = (size / deviation)[:, None]
        half = rates.shape[1] // 2
        combined = now[:, self.baselines : self.baselines + half]
        side = jnp.sign(combined - label[:, None]) / scale
        gradient = side[:, :, None] * (predicted[:, None] - combined[:, :, None])
        gradient = jnp.clip(gradient, -TUNED.clip, TUNED.clip)
        own = jnp.minimum(jnp.abs(predicted - label[:, None]) / scale, TUNED.clip)
        losses = jnp.concatenate([gradient, jnp.broadcast_to(own[:, None], gradient.shape)], axis=1)
        prior = _prior(self.baselines, self.experts - self.baselines)
        experts = _shared(state.experts, losses * rates[:, :, None], shares[:, :, None], prior)
        missed = jnp.abs(candidates - label[:, None]) / scale
        top, gap = self._top(state, missed, size[:, None], counted)
        averaged = jnp.concatenate([chosen, predicted], axis=1)
        mean = _mean(state.last[:, None], averaged, TUNED.clip * scale[:, 0])
        miss = jnp.clip((mean - label[:, None]) / scale, -TUNED.clip_error, TUNED.clip_error)
        slope = jnp.clip(miss * (averaged - mean) / scale, -TUNED.clip, TUNED.clip)
        rate, share = TUNED.last_rate / counted[:, None], TUNED.last_share / counted[:, None]
        last = _shared(state.last, slope * rate, share, self._last_prior)
        return NumberWeights(
            experts=jnp.where(known[:, None, None], experts, state.experts),
            top=jnp.where(known[:, None], top, state.top),
            last=jnp.where(known[:, None], last, state.last),
            unit=unit,
            recent=recent,
            num_labels=count,
            gap=jnp.where(known, gap, state.gap),
        )

    def _top(
        self,
        state: NumberWeights,
        missed: Float[Array, "O C"],
        unit: Float[Array, "O 1"],
        counted: Any,
    ) -> tuple[Float[Array, "O C"], Float[Array, "O"]]:
        """Return the weights of the top after losses in units, and the gap.

        Args:
            state: state before the losses.
            missed: losses of the candidates.
            unit: the unit of the losses.
            counted: number of labels that count as one at each step ahead.
        """
        maximum = np.maximum if isinstance(counted, np.ndarray) else jnp.maximum
        late, overlap = counted[:, None], maximum(counted - 1, 1.0)[:, None]
        missed = jnp.minimum(missed, TUNED.clip * overlap)
        above = missed - missed.min(axis=1, keepdims=True)

        def rate(gap: Float[Array, "O"]) -> Float[Array, "O 1"]:
            return jnp.minimum(TUNED.top_rate / late, unit / gap[:, None])

        def soft(scaled: Float[Array, "O 1"]) -> Float[Array, "O"]:
            shares = jnp.einsum("oc,oc->o", state.top, jnp.exp(-scaled * above))
            return jnp.log(shares) / scaled[:, 0]

        now = rate(state.gap)
        more = unit[:, 0] * jnp.maximum(soft(now * overlap) - soft(now), 0.0)
        gap = state.gap * (1 - 1 / (TUNED.number_span * counted)) + more
        prior = _prior(self.baselines, missed.shape[1] - self.baselines)
        return _shared(state.top, missed * rate(gap), TUNED.top_share / late, prior), gap


def _settings(counted: Any) -> tuple[Any, Any]:
    """Return the rate and share of each combination at each step ahead: `combined`, then `own`.

    Args:
        counted: number of labels that count as one at each step ahead.
    """
    rates, shares = (
        np.tile(values.ravel(), 2)[None]
        for values in np.meshgrid(TUNED.number_rates, TUNED.number_shares)
    )
    first_way = np.repeat([[1.0, 0.0]], rates.size // 2, axis=1)
    late = counted[:, None]
    return rates / (1 + (late - 1) * first_way), shares / late


def _scale(unit: ErrorScale, recent: Float[Array, "O"]) -> Float[Array, "O"]:
    """Return the scale of the error, which falls quickly if the last errors are small.

    After a phase of huge errors, for example before a relation is learned, the long mean alone
    would be too large for hundreds of rows and hide which experts are right.
    """
    return jnp.minimum(unit.size, TUNED.fallen * recent)


def _mean(
    weights: Float[Array, "O M E"], values: Float[Array, "O E"], reach: Float[Array, "O"]
) -> Float[Array, "O M"]:
    """Return means of values that are clipped at a distance `reach` from the middle.

    Args:
        weights: weights of each mean.
        values: values to average.
        reach: largest distance of a value from the middle.
    """
    apart = jnp.abs(values[:, :, None] - values[:, None])
    support = weights @ (apart <= reach[:, None, None]).astype(values.dtype)
    # Of values with the same support, the value with the largest weight.
    at = (support + _LEAST * weights).argmax(axis=-1)
    middle = jnp.take_along_axis(values, at, axis=-1)
    near = jnp.clip(
        values[:, None] - middle[..., None], *(sign * reach[:, None, None] for sign in (-1, 1))
    )
    return middle + (weights * near).sum(axis=-1)


def _prior(baselines: int, others: int) -> np.ndarray:
    """Return weights: half on the baselines, half on the others."""
    if not others or not baselines:
        return np.full(baselines + others, 1 / (baselines + others))
    return np.concatenate([np.full(baselines, 0.5 / baselines), np.full(others, 0.5 / others)])


def _shared(
    weights: Float[Array, "*A E"], losses: Array, share: Any, prior: np.ndarray
) -> Float[Array, "*A E"]:
    """Return weights after bounded losses, of which a share is given back to the prior."""
    prior = np.expand_dims(prior, tuple(range(weights.ndim - 1)))
    weights = weights * jnp.exp(-losses)
    total = weights @ np.ones(weights.shape[-1])  # a product is faster than a sum over few elements
    return ((1 - share) / total[..., None]) * weights + share * prior
