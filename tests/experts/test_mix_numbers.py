"""The mixture for numbers, by its definition in NumPy; the seasonal lag of the baselines."""

from collections import deque
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np

from foretrace.stream.experts.baselines import NumberBaselines, SeasonState
from foretrace.stream.experts.settings import TUNED
from foretrace.stream.model.mix_numbers import (
    NumberMixture,
)

EXPERTS, STEPS, DELAYS = 5, 3, (0, 1, 4)


def test_weights_follow_the_definition():
    """Logarithms of weights, as the head of the module has them, give the same predictions."""
    draw = np.random.default_rng(0)
    mixture = NumberMixture(EXPERTS, 3, STEPS)
    predict, learn = jax.jit(mixture.predict), jax.jit(mixture.learn)
    state, count = mixture.init(), len(TUNED.number_rates) * len(TUNED.number_shares)
    prior = np.r_[np.full(3, 1 / 6), np.full(2, 1 / 4)]
    top_prior = np.r_[np.full(3, 1 / 6), np.full(2 * count, 1 / (4 * count))]
    logs = np.tile(np.log(prior)[None, :, None], (2 * count, 1, STEPS))
    top = np.tile(np.log(top_prior)[:, None], (1, STEPS))
    last_prior = np.r_[TUNED.last_prior, np.full(EXPERTS, (1 - TUNED.last_prior) / EXPERTS)]
    last = np.tile(np.log(last_prior)[:, None], (1, STEPS))
    late, waiting, gap = 1.0 + np.array(DELAYS), deque(), np.array([1.0, 5.0, 20.0])
    overlap, state = np.maximum(DELAYS, 1), state._replace(gap=jnp.asarray(gap))
    for _ in range(34):
        experts, label = draw.normal(size=(EXPERTS, STEPS)), draw.normal(size=STEPS)
        experts += 40.0 * (draw.uniform(size=experts.shape) < 0.1)  # further than the reach
        deviation = draw.uniform(0.2, 5.0)
        mixed, candidates = predict(state, experts, jnp.array([1.5, deviation]))
        reach = _reach(state, deviation)
        now = _mean(np.exp(logs), experts, reach)
        made = np.concatenate([experts[:3], now])
        chosen = _mean(np.exp(top), made, reach)
        np.testing.assert_allclose(candidates, [*made, chosen], rtol=0, atol=1e-10)
        mean = _mean(np.exp(last), np.stack([chosen, *experts]), reach)
        np.testing.assert_allclose(mixed, 1.5 + deviation * mean, rtol=0, atol=1e-10)
        waiting.append((experts, label, candidates, made, chosen, deviation))
        if len(waiting) <= max(DELAYS):
            continue
        # Combinations are judged by the weights of now, top and last average by what was made.
        experts, label, candidates, made, chosen, deviation = waiting.popleft()
        now = _mean(np.exp(logs), experts, _reach(state, deviation))
        averaged, known = np.stack([chosen, *experts]), jnp.ones(STEPS, bool)
        moments = jnp.full((STEPS, 2), deviation)
        state = learn(state, experts, candidates, label, known, moments, np.array(DELAYS, float))
        size = np.maximum(_unit(state), 1e-9 * deviation)
        unit = size / deviation
        mean = _mean(np.exp(last), averaged, 8 * unit)
        rates, shares = (
            v.ravel()[:, None] for v in np.meshgrid(TUNED.number_rates, TUNED.number_shares)
        )
        for way in range(2):
            at = slice(way * count, (way + 1) * count)
            if way:
                losses = np.minimum(np.abs(experts - label) / unit, 8.0)[None]
            else:
                side = np.sign(now[at] - label)[:, None]
                losses = np.clip(side * (experts[None] - now[at][:, None]) / unit, -8, 8)
            by = (rates if way else rates / late)[:, None]
            logs[at] = _shared(logs[at] - by * losses, (shares / late)[:, None], prior)
        missed = np.minimum(np.abs(made - label) / unit, 8.0 * overlap)
        rate = np.minimum(TUNED.top_rate / late, size / gap)
        one, all_as_one = (
            np.log((np.exp(top - k * rate * (missed - missed.min(0)))).sum(0)) / (k * rate)
            for k in (1, overlap)
        )
        gap = gap * (1 - 1 / (200 * late)) + size * (all_as_one - one)
        np.testing.assert_allclose(state.gap, gap, rtol=0, atol=1e-10)
        missed = missed * np.minimum(TUNED.top_rate / late, size / gap)
        top = _shared((top - missed)[None], TUNED.top_share / late, top_prior)[0]
        slope = np.clip((mean - label) / unit, -3, 3) * (averaged - mean) / unit
        slope = TUNED.last_rate / late * np.clip(slope, -8, 8)
        last = _shared((last - slope)[None], TUNED.last_share / late, last_prior)[0]
    total = mixture.weights(state).sum(axis=0)
    np.testing.assert_allclose(total, np.ones(STEPS), rtol=0, atol=1e-10)


def test_the_first_of_equal_lags_is_the_season():
    baselines = NumberBaselines(2, 4)
    errors = np.array([[3.0, 1.0], [1.0, 2.0], [1.0, 1.0], [5.0, 5.0]])
    labels = np.array([10.0, 20.0, 30.0, 40.0])
    predict = jax.jit(lambda seen, labels: baselines.predict(seen, SimpleNamespace(labels=labels)))
    # Lags that were never compared are not chosen: the last number is.
    for compared, season in ((9.0, [20.0, 10.0]), (0.0, [10.0, 10.0])):
        found = np.asarray(predict(SeasonState(errors, np.full(4, compared)), labels))
        assert found[2].tolist() == season


def _unit(state):
    return np.minimum(state.unit.size, 4 * np.asarray(state.recent))


def _reach(state, deviation):
    size = 8 * _unit(state) / deviation
    return np.where(np.asarray(state.num_labels) > 0, size, np.inf)


def _mean(weights, values, reach):
    """Return the mean over experts of values within the reach of the one with most weight near."""
    values = np.broadcast_to(values, weights.shape)
    near = np.abs(values[..., :, None, :] - values[..., None, :, :]) <= reach
    at = ((near * weights[..., None, :, :]).sum(axis=-2) + 1e-6 * weights).argmax(axis=-2)
    middle = np.take_along_axis(values, at[..., None, :], axis=-2)
    return middle[..., 0, :] + (weights * np.clip(values - middle, -reach, reach)).sum(axis=-2)


def _shared(logs, share, prior):
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    return np.log((1 - share) * weights + share * prior[None, :, None])
