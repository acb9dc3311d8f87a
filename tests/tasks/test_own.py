"""Sequences of one's own: contents of a file, held-out shares, errors that name faults."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from foretrace import experiment
from foretrace.cli import _main as cli
from foretrace.experiment._config import TASKS
from foretrace.tasks.own import OwnSequences

RANDOM = np.random.default_rng(0)
XS = RANDOM.normal(3.0, 2.0, (20, 5, 2)).astype(np.float32)
LABELS = RANDOM.integers(0, 3, 20)
LENGTHS = np.arange(20) % 4 + 2


@pytest.fixture
def task_of(tmp_path):
    def make(**arrays):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.npz"
        np.savez(path, **arrays)
        return OwnSequences(str(path))

    return make


def every_row(task, split="training"):
    """Return the batch with all sequences of a split, in the order of the file."""
    members = task.split(split).members
    rows = task.split(split).rows(np.argsort(members), len(members), task.length)
    return np.sort(members), jax.tree.map(np.asarray, task.expand(rows))


def test_a_class_for_each_sequence_is_the_target_at_every_step(task_of):
    task = task_of(xs=XS, ys=LABELS, lengths=LENGTHS)
    members, batch = every_row(task)
    assert task.sizes == {"training": 16, "validation": 2, "test": 2} and task.output_size == 3
    assert (task.labels, task.loss.__class__.__name__) == ("sequence", "SoftmaxCrossEntropy")
    there = np.arange(5)[None] < LENGTHS[members][:, None]
    np.testing.assert_array_equal(batch.ys, np.repeat(LABELS[members][:, None], 5, 1))
    np.testing.assert_allclose(batch.mask, there / LENGTHS[members][:, None], rtol=1e-6)
    rows = XS[members][there].astype(float)
    want = (XS[members] - rows.mean(0)) / rows.std(0)
    np.testing.assert_allclose(batch.xs, np.where(there[..., None], want, 0), rtol=1e-4, atol=1e-5)


def test_labels_of_steps_may_be_missing(task_of):
    ys = np.where(np.arange(5)[None] == 2, -1, LABELS[:, None])
    task = dataclasses.replace(task_of(xs=XS, ys=ys), standardise=False)
    members, batch = every_row(task)
    np.testing.assert_array_equal(batch.xs, XS[members])
    assert task.labels == "step" and task.output_size == 3
    np.testing.assert_allclose(batch.mask, np.tile([0.25, 0.25, 0, 0.25, 0.25], (16, 1)))
    assert (batch.ys >= 0).all()


def test_a_number_for_each_sequence_is_the_target_of_its_last_step(task_of):
    ys = RANDOM.normal(100.0, 7.0, 20)
    members, batch = every_row(task := task_of(xs=XS, ys=ys, lengths=LENGTHS))
    assert (task.output_size, task.score_name) == (1, "variance explained")
    np.testing.assert_array_equal(batch.mask, np.arange(5)[None] == LENGTHS[members][:, None] - 1)
    targets = (ys[members] - ys[members].mean()) / ys[members].std()
    np.testing.assert_allclose((batch.ys[..., 0] * batch.mask).sum(1), targets, rtol=1e-4)
    # The mean of the targets explains nothing of their variance, the targets all of it.
    at_mean = [float(task.score(jnp.zeros(1), jnp.array([y]))) for y in targets]
    assert (
        np.mean(at_mean) == pytest.approx(0, abs=1e-5) and task.score(jnp.ones(1), jnp.ones(1)) == 1
    )


def test_test_sequences_of_the_file_are_the_test(task_of):
    task = task_of(xs=XS, ys=LABELS, xs_test=XS[:4] + 1, ys_test=LABELS[:4])
    assert task.sizes == {"training": 18, "validation": 2, "test": 4}
    members, batch = every_row(dataclasses.replace(task, standardise=False), "test")
    np.testing.assert_array_equal(batch.xs, XS[:4] + 1)


def test_parquet_holds_a_sequence_in_each_row(tmp_path):
    arrow, parquet = (pytest.importorskip(name) for name in ("pyarrow", "pyarrow.parquet"))
    rows = [x[:n].tolist() for x, n in zip(XS, LENGTHS, strict=True)]
    for ys in (LABELS.tolist(), [[int(y)] * int(n) for y, n in zip(LABELS, LENGTHS, strict=True)]):
        parquet.write_table(arrow.table({"xs": rows, "ys": ys}), tmp_path / "my.parquet")
        task = OwnSequences(str(tmp_path / "my.parquet"))
        members, batch = every_row(task)
        np.testing.assert_array_equal((batch.mask > 0).sum(1), LENGTHS[members])
        asked = batch.mask > 0
        np.testing.assert_array_equal(batch.ys[asked], np.repeat(LABELS[members], LENGTHS[members]))


def test_targets_that_are_partly_unknown_are_learned(task_of):
    ys = np.where(LABELS == 0, np.nan, LABELS.astype(float))
    members, batch = every_row(task_of(xs=XS, ys=ys))
    np.testing.assert_array_equal(batch.mask[:, -1] > 0, ~np.isnan(ys[members]))
    assert np.isfinite(batch.ys).all()


def test_the_command_line_takes_the_file_and_short_names():
    line = "train --data my.npz --lr 0.1 --depth 3 --cell gru --steps 5"
    command = cli._parse(line.split())
    config = command.config
    assert config.task == OwnSequences("my.npz")
    assert (config.optimizer.learning_rate, config.network.depth, config.steps) == (0.1, 3, 5)
    assert type(config.network.cell).__name__ == "GRU"


@pytest.mark.full
@pytest.mark.parametrize("ys", [LABELS, RANDOM.normal(size=(20, 5))], ids=["classes", "numbers"])
def test_an_experiment_on_it_has_scores(task_of, tmp_path, ys):
    small = experiment.NetworkConfig(depth=1, model_size=4, cell=experiment.LRU(state_size=2))
    config = dataclasses.replace(
        TASKS["own"], task=task_of(xs=XS, ys=ys).pinned(), network=small, steps=4, batch_size=4
    )
    result = experiment.train(config, tmp_path / "run", show_progress=False)
    assert result.scores is not None and np.isfinite(result.scores).all()
