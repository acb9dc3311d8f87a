"""The mixture is level with its best baseline and near its best expert, however late labels are."""

import dataclasses

import numpy as np
import pytest
from test_mixture import CLASSES, FEW, NUMBERS, packed, run
from tiers import fast, slow

from foretrace.stream.model.mixture import mixture

ROWS = 4000


def walk(draw):
    return np.cumsum(draw.normal(size=ROWS))


def autoregression(draw):
    noise, out = draw.normal(size=ROWS), np.zeros(ROWS)
    for t in range(1, ROWS):
        out[t] = 0.95 * out[t - 1] + noise[t]
    return out


def season(draw):
    return 3 * np.sin(2 * np.pi * np.arange(ROWS) / 24) + 0.3 * autoregression(draw)


def levels(draw):
    return np.repeat(draw.normal(size=8) * 5, ROWS // 8) + draw.normal(size=ROWS)


def chain(stay):
    """A class that lasts 1 / (1 - stay) rows on average, and is then drawn anew."""

    def classes(draw):
        out, now = [], 0
        ends, drawn = draw.uniform(size=ROWS) > stay, draw.integers(0, 4, ROWS)
        for end, following in zip(ends, drawn, strict=True):
            now = int(following) if end else now
            out.append(now)
        return np.array(out)

    return classes


def sign(draw):
    return (autoregression(draw) > 0).astype(int)


CASES = [("classes", 48), ("numbers", 48), slow("numbers", 0)]


@pytest.mark.parametrize(("kind", "delay"), fast(CASES, 0))
def test_the_mixture_is_level_with_its_best_baseline_and_expert_at_every_delay(kind, delay):
    shape = dataclasses.replace(NUMBERS, delay=delay)
    if kind == "classes":
        shape = dataclasses.replace(CLASSES, outputs=4, delay=delay)
    model, baselines = mixture(shape, FEW), 2 if shape.classes else 3
    streams = (walk, autoregression, season, levels)
    if shape.classes:
        streams = (chain(0.97), chain(0.99), sign)
    # The choice between some 20 candidates may cost a few errors, where `delay` + 1 labels are one
    # piece of evidence.
    cost = 2 * np.log(20) * (1 + delay) / ROWS
    for seed, stream in enumerate(streams):
        draw = np.random.default_rng([seed, delay])
        labels = stream(draw)
        _, step = run(model, packed(shape, draw.normal(size=(ROWS, 2)), labels.tolist()), 500)
        scored = slice(100 + delay, None)
        wrong = 1 - step.scores[:, 0] if shape.classes else step.scores[:, 0]
        experts, found = step.errors[scored].mean(axis=0), wrong[scored].mean()
        allowed = cost * (1 if shape.classes else experts.min())
        assert found < 1.02 * experts[:baselines].min() + allowed, (seed, found, experts)
        assert found < 1.05 * experts.min() + allowed, (seed, found, experts)
