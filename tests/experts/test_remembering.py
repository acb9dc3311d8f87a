"""Experts with a memory of their own."""

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from test_mixture import CLASSES, leaves, packed, run
from tiers import fast

from foretrace._experts.by_name import REMEMBERING
from foretrace._experts.distant import distant
from foretrace._experts.expert import Remembered
from foretrace._experts.memory import memory
from foretrace._experts.mixture import Mixture, mixture
from foretrace._experts.shape import Shape

FEW = ("baselines", "row")
ALL = (*FEW, *REMEMBERING)
LONG = Shape(4, (0, 1, 2, 3), 1, previous=False)


def stored(draw, rows, classes=False, columns=4):
    """A number, or its sign, is stored where two conditions hold together."""
    xs = draw.normal(size=(rows, columns))
    last = np.maximum.accumulate(np.where((xs[:, 0] > 1) & (xs[:, 1] > 1), np.arange(rows), 0))
    return xs, (xs[last, 2] > 0).astype(int) if classes else xs[last, 2]


@pytest.mark.parametrize(("delay", "columns"), fast([(0, 4), (4, 4), (0, 24)]))
def test_a_memory_is_learned_where_the_row_decides_what_is_written(delay, columns):
    shape = Shape(columns, tuple(range(columns)), 1, previous=False, delay=delay)
    xs, labels = stored(np.random.default_rng(0), 4000, columns=columns)
    model = mixture(shape, (*FEW, "memory"))
    _, step = run(model, packed(shape, xs, labels.tolist()), 500)
    errors = dict(zip(model.names, step.errors[-1000:].mean(axis=0), strict=True))
    mixed = step.scores[-1000:, 0].mean()
    # Late labels count as less evidence, 1 / (1 + delay) of it, so the same rows teach less.
    assert errors["row from mean"] > 0.6 > (0.45 if delay else 0.3) > errors["memory"]
    assert mixed < 1.05 * errors["memory"]


@pytest.mark.parametrize("reach", fast([20, 100, 500]))
def test_the_class_of_a_row_long_ago_is_found(reach):
    shape = dataclasses.replace(CLASSES, outputs=4, previous=False)
    draw = np.random.default_rng(0)
    digits = draw.integers(0, 4, 4000)
    xs = np.stack([(digits - 1.5) / 1.12, draw.normal(size=4000)], axis=1)
    rows = packed(shape, xs, np.roll(digits, reach).tolist())
    _, step = run(mixture(shape, (*FEW, "distant")), rows, 500)
    assert (step.newest.argmax(1) == np.roll(digits, reach))[-1000:].mean() > 0.95


@pytest.mark.full
@pytest.mark.parametrize("reach", fast([8, 300]))
def test_a_category_of_a_row_long_ago_is_found(reach):
    shape = Shape(6, (), 4, classes=True, previous=False, categories=((0, 6),))
    keys = np.random.default_rng(0).integers(0, 4, 3000)
    xs = np.eye(6)[keys + 1]
    rows = packed(shape, xs, np.roll(keys, reach).tolist())
    _, step = run(mixture(shape, (*FEW, "distant")), rows, 500)
    assert (step.newest.argmax(1) == np.roll(keys, reach))[-1000:].mean() > 0.95


def test_carries_with_late_labels_are_those_of_the_newest_row_and_of_the_row_to_be_learned():
    xs, labels = stored(np.random.default_rng(0), 30)
    carries = {}
    for rows in (28, 30):
        now = packed(LONG, xs, labels.tolist())[:rows]
        now[:, 0] = np.nan
        carries[rows] = run(mixture(LONG, (*FEW, "memory")), now)[0].carries
    shape = dataclasses.replace(LONG, delay=2)
    late = packed(shape, xs, labels.tolist())
    late[:, 0] = np.nan
    state, _ = run(mixture(shape, (*FEW, "memory")), late)
    found = leaves((state.carries, state.late_carries))
    for a, b in zip(found, leaves((carries[30], carries[28])), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_mean_squares_of_distant_are_those_of_the_column():
    draw, scales = np.random.default_rng(0), np.array([0.25, 0.5, 1.0, 2.0])
    rows = packed(LONG, draw.normal(size=(60, 1)) * scales, draw.normal(size=60).tolist())
    state, _ = run(mixture(LONG, ("baselines", "distant")), rows, 20)
    squares = np.asarray(state.experts[-1].squares[0])
    np.testing.assert_allclose(squares / squares[2], scales**2, rtol=1e-4)


def test_the_earlier_values_of_distant_are_those_of_the_rows_that_were_there():
    expert = dataclasses.replace(distant(LONG), reach=5)
    draw = np.random.default_rng(0)
    carry, xs = expert.new_carry(expert.init()), []
    move = jax.jit(lambda carry, x, moves: _moved(expert, carry, x, moves))
    for _ in range(23):
        x, moves = draw.normal(size=4).astype(np.float32), draw.random() < 0.7
        carry = move(carry, x, moves)
        xs += [x] if moves else []
        for lag in range(1, min(len(xs), 5) + 1):
            found = expert._values(carry)[:, carry.place + 1 + expert.reach - lag]
            np.testing.assert_array_equal(found, xs[-lag])


def _moved(expert, carry, x, moves):
    class Now(NamedTuple):
        now: Any

    return expert.move(Remembered(None, carry), Now(x), moves)


def test_experts_that_would_be_too_large_are_left_out():
    projected = Shape(200, tuple(range(200)), 1)
    assert memory(projected) is None
    few = Mixture(Shape(4, (0, 1), 48), ("baselines", *REMEMBERING))
    assert few.left_out == tuple(REMEMBERING) and few.names == ("last", "mean", "season")
