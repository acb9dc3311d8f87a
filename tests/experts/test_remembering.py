"""Experts with a memory of their own."""

import dataclasses

import numpy as np
from test_mixture import assert_same, packed, run

from foretrace._experts.mixture import mixture
from foretrace._experts.shape import Shape

FEW = ("baselines",)
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
