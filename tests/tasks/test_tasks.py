"""The tasks that are drawn: their layout, and that a batch is a function of seed and step alone."""

from functools import partial

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.tasks._order import shuffled_at
from foretrace.tasks.copy import Copy
from foretrace.tasks.selective_copy import SelectiveCopy


def batch(task, seed, step, size):
    """Return a batch as NumPy arrays, drawn by one program as in a run."""
    return map(np.asarray, jax.jit(lambda seed, step: task.batch(seed, step, size))(seed, step))


SMALL = Copy(pattern_length=3, padding=2, bits=4)


@pytest.mark.parametrize("task", [SMALL, Copy(pattern_length=3, padding=2, bits=4, samples=50)])
def test_layout(task):
    xs, ys, mask = batch(task, 0, 3, 20)
    assert xs.shape == (20, task.length, task.input_size) == (20, 9, 5)
    assert ys.shape == (20, 9, 4) and ys.dtype == np.int32 and task.output_size == 8
    pattern = xs[:, :3, :4]
    assert set(np.unique(pattern)) == {0.0, 1.0} and 0.3 < pattern.mean() < 0.7
    np.testing.assert_array_equal(ys[:, -3:], pattern)
    expected = np.zeros_like(xs)
    expected[:, :3, :4], expected[:, 5, 4] = pattern, 1
    np.testing.assert_array_equal(xs, expected)
    np.testing.assert_allclose(mask, np.tile([0] * 6 + [1 / 3] * 3, (20, 1)))


@given(
    span=st.integers(1, 12),
    share=st.floats(0, 1),
    symbols=st.integers(2, 5),
    seed=st.integers(0, 99),
)
def test_layout_of_selective_copying(span, share, symbols, seed):
    count = max(round(share * span), 1)
    task = SelectiveCopy(span, count, symbols)
    xs, ys, mask = batch(task, seed, 0, 5)
    assert xs.shape == (5, task.length, task.input_size) == (5, span + count, symbols + 2)
    assert ys.shape == (5, task.length) and ys.dtype == np.int32 and task.output_size == symbols
    np.testing.assert_array_equal(xs.sum(axis=2), 1)
    read = xs.argmax(axis=2)
    assert (read[:, span:] == symbols + 1).all() and (read[:, :span] <= symbols).all()
    for row, targets in zip(read[:, :span], ys[:, span:], strict=True):
        np.testing.assert_array_equal(row[row < symbols], targets)
    np.testing.assert_allclose(mask, np.tile([0] * span + [1 / count] * count, (5, 1)), rtol=1e-6)


def test_symbols_stand_anywhere():
    xs, _, _ = batch(SelectiveCopy(span=6, count=2, symbols=3), 0, 0, 3000)
    read = xs.argmax(axis=2)
    shares = (read[:, :6] < 3).mean(axis=0)
    np.testing.assert_allclose(shares, 1 / 3, atol=0.04)  # 4.6 standard deviations
    pairs = {tuple(np.flatnonzero(row < 3)) for row in read[:, :6]}
    assert len(pairs) == 15
    np.testing.assert_allclose(
        [(read == symbol).mean() * 8 / 2 for symbol in range(3)], 1 / 3, atol=0.03
    )


@given(count=st.integers(1, 3000), seed=st.integers(0, 9))
def test_an_order_that_is_looked_up_is_an_order(count, seed):
    look_up = partial(jax.jit(shuffled_at, static_argnums=2), jax.random.key(seed), count=count)
    found = np.asarray(look_up(np.arange(count)))
    assert sorted(found.tolist()) == list(range(count))
    some = np.array([count - 1, 0])
    assert look_up(some).tolist() == found[some].tolist()
