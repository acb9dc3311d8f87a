"""Reviews as bytes, of any length; and what padding must not change."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored import TEXTS, real_data

from foretrace.experiment._scores import _tally
from foretrace.tasks import Batch
from foretrace.tasks.imdb import IMDB


def test_bytes_targets_and_mask(data):
    task = data.imdb(max_length=30)
    assert task.sizes == {"training": 18, "validation": 2, "test": 20}
    xs, ys, mask = task.evaluation("test", 0, 0, 24)
    assert xs.shape == (24, 30, 256) and xs.dtype == mask.dtype == jnp.float32
    for row, member in enumerate(task.split("test").members):
        expected = list(TEXTS[member].encode()[:30])
        steps = len(expected)
        assert jnp.argmax(xs[row, :steps], axis=-1).tolist() == expected
        np.testing.assert_array_equal(xs[row].sum(axis=-1), [1] * steps + [0] * (30 - steps))
        np.testing.assert_allclose(mask[row], [1 / steps] * steps + [0] * (30 - steps), rtol=1e-6)
        assert set(ys[row].tolist()) == {member % 2}
    assert not xs[20:].any() and not mask[20:].any()
    # A first batch is mixed, though the file may be sorted.
    assert set(task.evaluation("test", 0, 0, 8).ys[:, 0].tolist()) == {0, 1}


def tally(outputs, ys, mask):
    """Return the sums of scores of logits of reviews."""
    outputs, ys, mask = map(jnp.asarray, (outputs, ys, mask))
    return _tally(IMDB(max_length=outputs.shape[1]), outputs, Batch(outputs, ys, mask))


@pytest.mark.full
@given(
    steps=st.integers(1, 5),
    padding=st.integers(0, 3),
    seed=st.integers(0, 999),
    junk=st.sampled_from([0.0, 1e9, np.nan]),
)
def test_padding_does_not_change_the_metric(steps, padding, seed, junk):
    draw = np.random.RandomState(seed)
    outputs, labels = draw.normal(size=(4, steps, 3)), draw.randint(0, 3, 4)
    expected = (outputs.mean(axis=1).argmax(axis=1) == labels).mean()
    length = steps + padding
    padded = np.full((6, length, 3), junk)
    padded[:4, :steps] = outputs
    mask = np.zeros((6, length))
    mask[:4, :steps] = 1 / steps
    ys = np.zeros((6, length), int)
    ys[:4, :steps] = labels[:, None]
    # The last two rows count nothing.
    assert tally(padded, ys, mask).scores().accuracy == pytest.approx(expected, rel=1e-12)


def test_hits_of_batches_add_up():
    outputs = np.array([[[1.0, 0.0]], [[1.0, 0.0]], [[9.0, 0.0]]])
    ys, mask = np.array([[0], [1], [0]]), np.array([[1.0], [1.0], [0.0]])
    found = tally(outputs, ys, mask)
    assert (found.accuracy, found.sequences, found.rows) == (1, 1, 2)
    assert tally(outputs, ys, np.zeros_like(mask)).rows == 0


def test_real_reviews():
    pytest.importorskip("pyarrow", reason="reading parquet needs the extra `data`")
    task = IMDB(data_dir=real_data("imdb"))
    assert task.sizes == {"training": 22_500, "validation": 2_500, "test": 25_000}
    split = task.split("training")
    lengths = np.diff(split.offsets)
    found = [
        lengths.min(),
        np.median(lengths),
        round(lengths.mean()),
        np.percentile(lengths, 95),
        lengths.max(),
    ]
    assert found == [52, 979, 1325, 3440, 13_704]
    np.testing.assert_array_equal(np.bincount(split.labels), [12_500, 12_500])
    held_out = task.split("validation")
    assert abs(held_out.labels[held_out.members].mean() - 0.5) < 0.05
    rows = task.rows("training", 0, 3, 50)
    assert rows.symbols.shape == (50, 4000) and rows.symbols[0, : rows.lengths[0]].all()
