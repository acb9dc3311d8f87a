"""Experts with a memory of their own."""

import dataclasses
from typing import Any, NamedTuple

import jax
import numpy as np
from test_mixture import assert_same, packed, run

from foretrace._experts.by_name import REMEMBERING
from foretrace._experts.distant import distant
from foretrace._experts.expert import Remembered
from foretrace._experts.memory import memory
from foretrace._experts.mixture import Mixture, mixture
from foretrace._experts.shape import Shape

FEW = ("baselines", "row")
ALL = (*FEW, *REMEMBERING)
LONG = Shape(4, (0, 1, 2, 3), 1, previous=False)


def test_carries_with_late_labels_are_those_of_the_newest_row_and_of_the_row_to_be_learned():
    draw = np.random.default_rng(0)
    xs, labels = draw.normal(size=(30, 4)), draw.normal(size=30)
    carries = {}
    for rows in (28, 30):
        now = packed(LONG, xs, labels.tolist())[:rows]
        now[:, 0] = np.nan
        carries[rows] = run(mixture(LONG, (*FEW, "memory")), now)[0].carries
    shape = dataclasses.replace(LONG, delay=2)
    late = packed(shape, xs, labels.tolist())
    late[:, 0] = np.nan
    state, _ = run(mixture(shape, (*FEW, "memory")), late)
    found = state.carries, state.late_carries
    assert_same(found, (carries[30], carries[28]), rtol=1e-5, atol=1e-6)


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
