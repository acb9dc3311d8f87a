"""Experts with a memory of their own."""

import dataclasses

import numpy as np
import pytest
from test_mixture import CLASSES, assert_same, packed, run
from tiers import fast, slow

from foretrace.stream.model.mixture import mixture

DELAY = 2


@pytest.mark.parametrize("name", fast(["distant", slow("memory")], 0))
def test_carries_with_late_labels_are_those_of_the_newest_row_and_of_the_row_to_be_learned(name):
    xs, experts, carries = np.random.default_rng(0).normal(size=(30, 2)), ("baselines", name), {}
    for delay, count in ((0, 30), (0, 30 - DELAY), (DELAY, 30)):
        shape = dataclasses.replace(CLASSES, delay=delay)
        rows = packed(shape, xs, [0] * 30, known=[False] * 30)[:count]
        state, _ = run(mixture(shape, experts), rows, DELAY)
        carries[delay, count] = state.carries
    expected = carries[0, 30], carries[0, 30 - DELAY]
    assert_same((carries[DELAY, 30], state.late_carries), expected, rtol=1e-5, atol=1e-6)
