"""Sequential images: files, cache and checksums, splits and epochs, pixels in the right place."""

import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stored import real_data, write_idx, write_parquet

from foretrace.tasks import _files
from foretrace.tasks._files import DataError
from foretrace.tasks.images import SequentialCIFAR10, SequentialMNIST

TRAIN, TEST = 40, 13


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FORETRACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FORETRACE_DATA", raising=False)


def mnist_images(count):
    """Image i is i everywhere but for a counted first row; its class is i modulo 10."""
    images = np.broadcast_to(
        np.arange(count, dtype=np.uint8)[:, None, None], (count, 28, 28)
    ).copy()
    images[:, 0] = np.arange(28)
    return images, np.arange(count, dtype=np.uint8) % 10


def write_mnist(root, suffix=""):
    for stem, count in (("train", TRAIN), ("t10k", TEST)):
        images, labels = mnist_images(count)
        write_idx(root / "mnist" / f"{stem}-images-idx3-ubyte{suffix}", images)
        write_idx(root / "mnist" / f"{stem}-labels-idx1-ubyte{suffix}", labels)
    return str(root)


@pytest.fixture
def mnist(tmp_path):
    return SequentialMNIST(data_dir=write_mnist(tmp_path / "data"), verify=False)


def cifar_images(count):
    return np.random.RandomState(count).randint(0, 256, (count, 32, 32, 3)).astype(np.uint8)


def write_cifar(root):
    image = pytest.importorskip("PIL.Image", reason="decoding images needs the extra `data`")

    def png(pixels):
        file = io.BytesIO()
        image.fromarray(pixels).save(file, "png")
        return {"bytes": file.getvalue(), "path": None}

    images, folder = cifar_images(20), root / "cifar10" / "plain_text"
    for name, part in {
        "train-00000-of-00002": images[:10],
        "train-00001-of-00002": images[10:],
    }.items():
        write_parquet(
            folder / f"{name}.parquet",
            {"img": [png(p) for p in part], "label": [int(p[0, 0, 0]) % 10 for p in part]},
        )
    return str(root)


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_idx_files_are_read_however_compressed(tmp_path, suffix):
    task = SequentialMNIST(data_dir=write_mnist(tmp_path / "data", suffix), verify=False)
    assert task.sizes == {"training": 36, "validation": 4, "test": TEST}
    rows = task.rows("test", 0, 0, TEST)
    images, labels = mnist_images(TEST)
    order = np.argsort(rows.symbols[:, 1, 0])
    np.testing.assert_array_equal(rows.symbols[order], images)
    np.testing.assert_array_equal(rows.labels[order], labels)


def test_an_epoch_has_every_training_image_once_in_an_order_of_its_own(mnist):
    def epoch(seed, number):
        steps = range(number * 4, (number + 1) * 4)
        return np.concatenate(
            [mnist.rows("training", seed, step, 9).symbols[:, 1, 0] for step in steps]
        )

    orders = [epoch(0, 0), epoch(0, 1), epoch(1, 0)]
    held_out = mnist.rows("validation", 0, 0, 4).symbols[:, 1, 0]
    for order in orders:
        assert sorted([*order, *held_out]) == list(range(TRAIN))
    assert not np.array_equal(orders[0], orders[1]) and not np.array_equal(orders[0], orders[2])
    np.testing.assert_array_equal(epoch(0, 0), orders[0])


@pytest.mark.parametrize("size", [1, 5, 13, 20])
def test_evaluation_counts_every_image_once(mnist, size):
    batches = [
        mnist.evaluation("test", 0, index, size)
        for index in range(mnist.evaluation_steps("test", size))
    ]
    weight = np.concatenate([batch.mask.sum(axis=1) for batch in batches])
    np.testing.assert_allclose(
        np.sort(weight)[::-1], [1.0] * TEST + [0.0] * (len(weight) - TEST), atol=1e-6
    )
    labels = np.concatenate([batch.ys[:, 0] for batch in batches])[weight > 0]
    assert sorted(labels) == sorted(np.arange(TEST) % 10)
    assert not mnist.evaluation("test", 0, len(batches), size).mask.any()


def test_validation_is_the_same_for_every_seed(mnist):
    np.testing.assert_array_equal(
        mnist.evaluation("validation", 0, 0, 4).xs, mnist.evaluation("validation", 5, 0, 4).xs
    )


def test_samples_are_the_first_of_the_training_images(mnist, tmp_path):
    fewer = SequentialMNIST(data_dir=mnist.data_dir, verify=False, samples=6)
    assert fewer.sizes == {"training": 6, "validation": 4, "test": TEST}
    np.testing.assert_array_equal(
        fewer.split("training").members, mnist.split("training").members[:6]
    )
    with pytest.raises(ValueError, match="samples=37: at least 1 and at most 36"):
        SequentialMNIST(data_dir=mnist.data_dir, verify=False, samples=37).batch(0, 0, 1)


@pytest.mark.parametrize("size", [0, 37])
def test_batch_sizes_are_checked(mnist, size):
    with pytest.raises(ValueError, match=f"a batch of {size} sequences"):
        mnist.batch(0, 0, size)


def test_a_traced_step_and_seed_give_the_same_batch(mnist):
    def total(seed, step):
        return mnist.batch(seed, step, 3)

    traced = jax.jit(jax.vmap(total, in_axes=(0, None)))(jnp.arange(2), jnp.asarray(13))
    for seed in range(2):
        for expected, batch in zip(mnist.batch(seed, 13, 3), traced, strict=True):
            np.testing.assert_allclose(batch[seed], expected, rtol=1e-6)


def test_pixels_come_row_by_row_or_permuted(mnist):
    xs, ys, mask = mnist.evaluation("validation", 0, 0, 1)
    assert (
        xs.shape == (1, 784, 1)
        and ys.shape == mask.shape == (1, 784)
        and xs.dtype == mask.dtype == jnp.float32
    )
    np.testing.assert_allclose(xs[0, :28, 0], (np.arange(28) / 255 - 0.1307) / 0.3081, rtol=1e-5)
    permuted = SequentialMNIST(data_dir=mnist.data_dir, verify=False, permuted=True).evaluation(
        "validation", 0, 0, 1
    )
    order = np.random.RandomState(92916).permutation(784)
    np.testing.assert_array_equal(permuted.xs[0], xs[0][order])
    pooled = SequentialMNIST(data_dir=mnist.data_dir, verify=False, pool=2).evaluation(
        "validation", 0, 0, 1
    )
    blocks = np.asarray(xs).reshape(14, 2, 14, 2).mean(axis=(1, 3))
    np.testing.assert_allclose(pooled.xs, blocks.reshape(1, 196, 1), rtol=1e-5)


def test_the_loss_of_a_network_that_knows_nothing(mnist):
    batch = mnist.evaluation("test", 0, 0, 4)
    losses = jax.vmap(jax.vmap(mnist.loss))(jnp.zeros((4, mnist.length, 10), jnp.float32), batch.ys)
    np.testing.assert_allclose((losses * batch.mask).sum(axis=1), np.log(10), rtol=1e-5)


def test_cifar_shards_are_read_in_order(tmp_path):
    task = SequentialCIFAR10(data_dir=write_cifar(tmp_path / "data"), verify=False)
    assert (task.input_size, task.length) == (3, 1024)
    split = task.split("validation")
    assert len(split.members) == 2
    pixels = cifar_images(20)[split.members]
    xs, ys, mask = task.evaluation("validation", 0, 0, 2)
    expected = (pixels / 255 - [0.4914, 0.4822, 0.4465]) / [0.2470, 0.2435, 0.2616]
    np.testing.assert_allclose(xs, expected.reshape(2, 1024, 3), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(ys[:, 0], pixels[:, 0, 0, 0] % 10)
    np.testing.assert_allclose(mask, 1 / 1024)


@pytest.mark.parametrize("kind", [SequentialCIFAR10, SequentialMNIST])
def test_a_pool_that_does_not_divide_is_refused(kind):
    with pytest.raises(ValueError, match="pool=3 must divide"):
        kind(pool=3)


def test_a_data_directory_is_asked_for(tmp_path, monkeypatch):
    with pytest.raises(
        DataError, match=r"the environment variable FORETRACE_DATA, or by --data-dir"
    ):
        SequentialMNIST().batch(0, 0, 1)
    monkeypatch.setenv("FORETRACE_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"nowhere does not exist; name another by"):
        SequentialMNIST().batch(0, 0, 1)


def test_a_missing_file_is_named_with_its_origin_and_place(tmp_path):
    root = write_mnist(tmp_path / "data")
    (tmp_path / "data" / "mnist" / "t10k-labels-idx1-ubyte").unlink()
    task = SequentialMNIST(data_dir=root, verify=False)
    task.batch(0, 0, 1)
    with pytest.raises(
        DataError, match=r"t10k-labels-idx1-ubyte.* does not exist. Get the four .* into .*mnist"
    ):
        task.evaluation("test", 0, 0, 1)
    with pytest.raises(DataError, match=r"train-\*.parquet does not exist. Get .*uoft-cs/cifar10"):
        SequentialCIFAR10(data_dir=root).batch(0, 0, 1)


def test_a_missing_shard_is_named(tmp_path):
    root = write_cifar(tmp_path / "data")
    (tmp_path / "data" / "cifar10" / "plain_text" / "train-00001-of-00002.parquet").unlink()
    with pytest.raises(DataError, match="train-00001-of-00002.parquet does not exist"):
        SequentialCIFAR10(data_dir=root, verify=False).batch(0, 0, 1)


def test_files_that_are_not_the_public_ones_are_refused(mnist):
    with pytest.raises(
        DataError, match=r"(?s)not the public .*verify=False.*images-idx3-ubyte: sha256 .*expected"
    ):
        SequentialMNIST(data_dir=mnist.data_dir).batch(0, 0, 1)


def test_a_damaged_file_is_named(tmp_path):
    root = write_mnist(tmp_path / "data", ".gz")
    path = tmp_path / "data" / "mnist" / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match="cannot read .*train-images-idx3-ubyte.gz"):
        SequentialMNIST(data_dir=root, verify=False).batch(0, 0, 1)
    path.with_suffix("").write_bytes(b"no idx file")
    path.unlink()
    with pytest.raises(DataError, match="train-images-idx3-ubyte is not an idx file"):
        SequentialMNIST(data_dir=root, verify=False).batch(0, 0, 1)


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    root = write_cifar(tmp_path / "data")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    with pytest.raises(DataError, match=r"pip install 'foretrace\[data\]'"):
        SequentialCIFAR10(data_dir=root, verify=False).batch(0, 0, 1)


def test_files_are_decoded_once(mnist, tmp_path, monkeypatch):
    first = mnist.batch(0, 0, 3)
    _files.Source.load.cache_clear()  # as in another process
    monkeypatch.setattr(_files.Source, "_decode", None)
    again = mnist.batch(0, 0, 3)
    np.testing.assert_array_equal(again.xs, first.xs)
    assert isinstance(mnist.split("training").symbols, np.memmap)


def test_other_files_are_decoded_anew_and_a_damaged_cache_too(mnist, tmp_path):
    before = mnist.rows("training", 0, 0, 36)
    (kept,) = (tmp_path / "cache").glob("mnist-train-*/symbols.npy")
    for spoil in (lambda: kept.write_bytes(kept.read_bytes()[:500]), kept.unlink):
        spoil()
        _files.Source.load.cache_clear()
        np.testing.assert_array_equal(mnist.rows("training", 0, 0, 36).symbols, before.symbols)
    images, _ = mnist_images(TRAIN)
    write_idx(tmp_path / "data" / "mnist" / "train-images-idx3-ubyte", images + 1)
    _files.Source.load.cache_clear()
    np.testing.assert_array_equal(mnist.rows("training", 0, 0, 36).symbols, before.symbols + 1)


def test_a_cache_that_cannot_be_written_is_an_error_that_says_so(mnist, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FORETRACE_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match="could not be cached.*FORETRACE_CACHE"):
        mnist.batch(0, 0, 1)


@pytest.mark.full
def test_real_mnist():
    task = SequentialMNIST(data_dir=real_data("mnist"))
    assert task.sizes == {"training": 54_000, "validation": 6_000, "test": 10_000}
    pixels = np.asarray(task.split("training").symbols[:5000]) / 255
    np.testing.assert_allclose([pixels.mean(), pixels.std()], [0.1307, 0.3081], atol=5e-3)
    np.testing.assert_array_equal(
        task.split("training").labels[:10], [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    )
    assert abs(task.batch(0, 7, 50).xs.mean()) < 0.1


@pytest.mark.full
def test_real_cifar_statistics():
    pytest.importorskip("pyarrow", reason="reading parquet needs the extra `data`")
    task = SequentialCIFAR10(data_dir=real_data("cifar10"))
    assert task.sizes == {"training": 45_000, "validation": 5_000, "test": 10_000}
    pixels = np.asarray(task.split("training").symbols).reshape(-1, 3).astype(np.float64) / 255
    np.testing.assert_allclose(pixels.mean(axis=0), [0.4914, 0.4822, 0.4465], atol=1e-4)
    np.testing.assert_allclose(pixels.std(axis=0), [0.2470, 0.2435, 0.2616], atol=1e-4)
