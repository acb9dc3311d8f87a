"""Sequential images: files, cache and checksums, pixels in the right place."""

import jax.numpy as jnp
import numpy as np
import pytest
from stored import TEST, cifar_images, mnist_images, write_idx

from foretrace.tasks import _files


@pytest.mark.parametrize("suffix", ["", ".xz"])
def test_idx_files_are_read_however_compressed(data, suffix):
    task = data.mnist(suffix)
    assert task.sizes == {"training": 36, "validation": 4, "test": TEST}
    rows = task.rows("test", 0, 0, TEST)
    order = np.argsort(rows.symbols[:, 1, 0])
    for got, want in zip((rows.symbols, rows.labels), mnist_images(TEST), strict=True):
        np.testing.assert_array_equal(got[order], want)


def test_pixels_come_row_by_row_permuted_or_pooled(data):
    def first(**options):
        return data.mnist(**options).evaluation("validation", 0, 0, 1)

    xs, ys, mask = first()
    assert xs.shape == (1, 784, 1) and ys.shape == mask.shape == (1, 784)
    assert xs.dtype == mask.dtype == jnp.float32
    np.testing.assert_allclose(xs[0, :28, 0], (np.arange(28) / 255 - 0.1307) / 0.3081, rtol=1e-5)
    order = np.random.RandomState(92916).permutation(784)
    np.testing.assert_array_equal(first(permuted=True).xs[0], xs[0][order])
    blocks = np.asarray(xs).reshape(14, 2, 14, 2).mean(axis=(1, 3))
    np.testing.assert_allclose(first(pool=2).xs, blocks.reshape(1, 196, 1), rtol=1e-5)


@pytest.mark.full
def test_cifar_shards_are_read_in_order(data):
    task = data.cifar()
    assert (task.input_size, task.length) == (3, 1024)
    members = task.split("validation").members
    assert len(members) == 2
    pixels = cifar_images(20)[members]
    xs, ys, mask = task.evaluation("validation", 0, 0, 2)
    expected = (pixels / 255 - [0.4914, 0.4822, 0.4465]) / [0.2470, 0.2435, 0.2616]
    np.testing.assert_allclose(xs, expected.reshape(2, 1024, 3), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(ys[:, 0], pixels[:, 0, 0, 0] % 10)
    np.testing.assert_allclose(mask, 1 / 1024)


def test_files_are_decoded_once(data, monkeypatch):
    mnist = data.mnist()
    first = mnist.batch(0, 0, 3)
    _files.Source.load.cache_clear()  # as in another process
    monkeypatch.setattr(_files.Source, "_decode", None)
    np.testing.assert_array_equal(mnist.batch(0, 0, 3).xs, first.xs)
    assert isinstance(mnist.split("training").symbols, np.memmap)


def test_other_files_are_decoded_anew_and_a_damaged_cache_too(data, tmp_path):
    mnist = data.mnist()
    before = mnist.rows("training", 0, 0, 36)
    (kept,) = (tmp_path / "cache").glob("mnist-train-*/symbols.npy")
    for spoil in (lambda: kept.write_bytes(kept.read_bytes()[:500]), kept.unlink):
        spoil()
        _files.Source.load.cache_clear()
        np.testing.assert_array_equal(mnist.rows("training", 0, 0, 36).symbols, before.symbols)
    write_idx(data.root / "mnist" / "train-images-idx3-ubyte", mnist_images(40)[0] + 1)
    _files.Source.load.cache_clear()
    np.testing.assert_array_equal(mnist.rows("training", 0, 0, 36).symbols, before.symbols + 1)
