"""Laws of every task: a batch is a function of seed and step, an epoch has every sequence once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stored import Data
from tiers import fast

STORED = ["imdb", "own", "mnist", "listops"]
DRAWN = ["copy", "selective"]


@pytest.fixture(params=fast(STORED, 2) + fast(DRAWN))
def task(request, data):
    return getattr(data, request.param)()


@pytest.fixture
def stored(data, request):
    return getattr(data, request.param)()


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def rows(batch):
    """Return the sequences of a batch in a form that can be compared."""
    return [x.tobytes() for x in np.asarray(batch.xs)]


def half(task):
    """Return half of the number of sequences: every batch has this size, so shapes are the same."""
    return (task.samples if hasattr(task, "draw") else task.sizes["training"]) // 2


def epoch(task, seed=0, number=0):
    batches = [task.batch(seed, 2 * number + step, half(task)) for step in range(2)]
    return rows(batches[0]) + rows(batches[1])


def test_a_batch_is_a_function_of_seed_and_step(task):
    size = half(task)
    once = task.batch(0, 7, size)
    assert same(once, task.batch(0, 7, size))
    traced = jax.jit(jax.vmap(lambda seed, step: task.batch(seed, step, size), in_axes=(0, None)))
    both = jax.tree.map(np.asarray, traced(jnp.arange(2), jnp.asarray(7)))
    for seed in range(2):
        for got, want in zip(both, task.batch(seed, 7, size), strict=True):
            np.testing.assert_allclose(got[seed], want, rtol=1e-6)
    assert rows(once) != rows(task.batch(0, 8, size)) and rows(once) != rows(task.batch(1, 7, size))


def test_an_epoch_has_every_sequence_once_in_an_order_of_its_own(task):
    first, second, other = epoch(task), epoch(task, number=1), epoch(task, seed=1)
    assert len(set(first)) == 2 * half(task) and sorted(first) == sorted(second)
    assert first != second and first != other
    assert hasattr(task, "draw") or sorted(other) == sorted(first)


@pytest.mark.parametrize("split", ["validation", "test"])
def test_held_out_sequences_are_others(task, split):
    found, drawn = task.evaluation(split, 0, 0, half(task)), hasattr(task, "draw")
    held = rows(found)[:2]
    assert len({*held}) == 2 and held != rows(task.evaluation(split, 0, 1, half(task)))[:2]
    if not hasattr(task, "source"):
        other = "test" if split == "validation" else "validation"
        assert not {*held} & {*rows(task.evaluation(other, 0, 0, half(task)))[:2]}
    if split == "validation" or not hasattr(task, "source"):  # which has files for the test
        assert not {*held} & {*epoch(task)}
    assert same(found, task.evaluation(split, 5, 0, half(task))) != drawn
    assert (task.evaluation_steps(split, 4) is None) == drawn


@pytest.mark.parametrize("stored", fast(STORED, 2), indirect=True)
@pytest.mark.parametrize("size", fast([5, 1, 20]))
def test_evaluation_counts_every_sequence_once(stored, size):
    count, total = stored.sizes["test"], stored.evaluation_steps("test", size)
    batches = [stored.evaluation("test", 0, index, size) for index in range(total)]
    weight = np.concatenate([np.asarray(batch.mask).sum(axis=1) for batch in batches])
    np.testing.assert_allclose(
        -np.sort(-weight), [1.0] * count + [0.0] * (len(weight) - count), atol=1e-6
    )
    assert not np.any(stored.evaluation("test", 0, total, size).mask)


def test_the_loss_of_a_network_that_knows_nothing_is_the_logarithm_of_the_classes(task):
    xs, ys, mask = task.evaluation("test", 0, 0, half(task))
    zeros = np.zeros((*ys.shape[:2], task.output_size), np.float32)
    losses = jax.jit(jax.vmap(jax.vmap(task.loss)))(zeros, ys)
    classes = task.output_size // max(int(np.prod(ys.shape[2:])), 1)
    means = (np.asarray(losses) * np.asarray(mask)).sum(axis=1)[:2]
    np.testing.assert_allclose(means, np.log(classes), rtol=1e-5)


@pytest.mark.parametrize("make", fast([lambda data: data.imdb(max_length=30), Data.listops]))
def test_inputs_are_unit_vectors_of_the_stored_symbols(data, make):
    """Its class is the target of a sequence, whose valid steps have equal weights."""
    task = make(data)
    split, count = task.split("test"), task.sizes["test"]
    xs, ys, mask = map(np.asarray, task.evaluation("test", 0, 0, count + 3))
    for row, member in enumerate(split.members):
        symbols = split.symbols[split.offsets[member] : split.offsets[member + 1]][: task.length]
        want, steps = np.zeros(xs.shape[1:]), len(symbols)
        want[np.arange(steps), symbols] = 1
        np.testing.assert_array_equal(xs[row], want)
        np.testing.assert_allclose(mask[row], want.sum(1) / steps, rtol=1e-6)
        assert set(ys[row].tolist()) == {int(split.labels[member])}
    assert not xs[count:].any() and not mask[count:].any()
    assert xs.dtype == mask.dtype == jnp.float32


@pytest.mark.parametrize("size", [0, 1000])
def test_batch_sizes_are_checked(task, size):
    with pytest.raises(ValueError, match=f"a batch of {size} sequences"):
        task.batch(0, 0, size)
    if not size:
        with pytest.raises(ValueError, match="a batch of 0 sequences"):
            task.evaluation("validation", 0, 0, 0)
