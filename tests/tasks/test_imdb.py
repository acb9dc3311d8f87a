"""Reviews as bytes, of any length; and what padding must not change."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored import TEXTS, real_data
from tiers import slow

from foretrace.experiment._scores import _tally
from foretrace.tasks import Batch
from foretrace.tasks.images import SequentialCIFAR10, SequentialMNIST
from foretrace.tasks.imdb import IMDB


def test_reviews_are_bytes(data):
    task = data.imdb()
    assert task.sizes == {"training": 18, "validation": 2, "test": 20}
    split = task.split("test")
    assert split.symbols.tobytes() == "".join(TEXTS).encode()
    np.testing.assert_array_equal(np.diff(split.offsets), [len(text.encode()) for text in TEXTS])
    np.testing.assert_array_equal(split.labels, np.arange(20) % 2)
    # A first batch is mixed, though the file may be sorted.
    assert set(task.evaluation("test", 0, 0, 8).ys[:, 0].tolist()) == {0, 1}


@given(
    steps=st.sampled_from([1, 4]),
    padding=st.sampled_from([0, 3]),
    seed=st.integers(0, 999),
    junk=st.sampled_from([0.0, 1e9, np.nan]),
)
def test_padding_does_not_change_the_metric(steps, padding, seed, junk):
    draw = np.random.RandomState(seed)
    outputs, labels = draw.normal(size=(4, steps, 3)), draw.randint(0, 3, 4)
    hits = (outputs.mean(axis=1).argmax(axis=1) == labels).sum()
    length = steps + padding
    padded, mask, ys = np.full((6, length, 3), junk), np.zeros((6, length)), np.zeros((6, length))
    # The last two rows count nothing.
    padded[:4, :steps], mask[:4, :steps], ys[:4, :steps] = outputs, 1 / steps, labels[:, None]
    batch = Batch(*map(jnp.asarray, (padded, ys.astype(int), mask)))
    found = jax.jit(lambda batch: _tally(IMDB(max_length=length), batch.xs, batch))(batch)
    assert (found.accuracy, found.sequences, found.rows) == (hits, hits, 4)
    assert found.scores().accuracy == pytest.approx(hits / 4, rel=1e-12)


REAL = {
    "mnist": (SequentialMNIST, (54_000, 6_000, 10_000)),
    "cifar10": (SequentialCIFAR10, (45_000, 5_000, 10_000)),
    "imdb": (IMDB, (22_500, 2_500, 25_000)),
}


@pytest.mark.full
@pytest.mark.parametrize("folder", ["mnist", "imdb", slow("cifar10")])
def test_the_public_files_are_read(folder):
    pytest.importorskip("pyarrow", reason="reading parquet needs the extra `data`")
    kind, sizes = REAL[folder]
    task = kind(data_dir=real_data(folder))
    assert (*task.sizes.values(),) == sizes
    rows = task.rows("training", 0, 3, 50)
    assert rows.symbols.shape[0] == 50 and {*rows.labels.tolist()} <= {*range(task.output_size)}
