"""Sequences of one's own: contents of a file, held-out shares, errors that name faults."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stored import LABELS, LENGTHS, RANDOM, XS, write_parquet

from foretrace.tasks._files import DataError
from foretrace.tasks.own import OwnSequences


def every_row(task, split="training"):
    """Return the batch with all sequences of a split, in the order of the file."""
    members = task.split(split).members
    rows = task.split(split).rows(np.argsort(members), len(members), task.length)
    return np.sort(members), jax.tree.map(np.asarray, task.expand(rows))


STEPS = np.arange(5)[None]
THERE, LAST = LENGTHS[:, None] > STEPS, LENGTHS[:, None] - 1 == STEPS
NUMBERS = RANDOM.normal(100.0, 7.0, (20, 5))
ASKED = {
    "class": (LABELS, THERE),
    "classes": (np.where(STEPS == 2, -1, LABELS[:, None]), THERE & (STEPS != 2)),
    "number": (NUMBERS[:, 0], LAST),
    "numbers": (NUMBERS, THERE),
    "some": (np.where(LABELS == 0, np.nan, NUMBERS[:, 0]), LAST & (LABELS != 0)[:, None]),
}
"""Targets of sequences and of steps, and the steps that are asked for them."""


def in_parquet(data, ys):
    """Return the task with a sequence in each row, of its own length."""

    def cut(rows):
        return [row[:n].tolist() for row, n in zip(rows, LENGTHS, strict=True)]

    columns = {"xs": cut(XS), "ys": cut(ys) if ys.ndim == 2 else ys.tolist()}
    write_parquet(data.root / "my.parquet", columns)
    return OwnSequences(str(data.root / "my.parquet"))


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_steps_that_are_asked_share_the_weight_of_their_sequence(data, name, suffix):
    ys, asked = ASKED[name]
    padded = {"xs": XS, "ys": ys, "lengths": LENGTHS}
    task = in_parquet(data, ys) if suffix == "parquet" else data.own(**padded)
    members, batch = every_row(dataclasses.replace(task, standardise=False))
    assert task.sizes == {"training": 16, "validation": 2, "test": 2}
    assert task.labels == ("sequence" if name == "class" else "step")
    assert task.output_size == (3 if "class" in name else 1)
    asked = asked[members]
    np.testing.assert_array_equal(batch.xs, np.where(THERE[..., None], XS, 0)[members])
    np.testing.assert_allclose(batch.mask, asked / np.maximum(asked.sum(1, keepdims=True), 1))
    of_steps = ys if ys.ndim == 2 else np.repeat(ys[:, None], 5, 1)
    targets = batch.ys.reshape(asked.shape)
    np.testing.assert_allclose(targets[asked], of_steps[members][asked], rtol=1e-6)
    assert np.isfinite(targets).all() and (targets >= 0).all()


def test_training_sequences_are_standardised(data):
    """The mean of the targets explains nothing of their variance, the targets all of it."""
    task = data.own(xs=XS, ys=NUMBERS[:, 0], lengths=LENGTHS)
    members, batch = every_row(task)
    there = THERE[members]
    rows, ys = XS[members][there].astype(float), NUMBERS[members, 0]
    np.testing.assert_allclose(
        batch.xs[there], (rows - rows.mean(0)) / rows.std(0), rtol=1e-4, atol=1e-5
    )
    targets = (batch.ys[..., 0] * batch.mask).sum(1)
    np.testing.assert_allclose(targets, (ys - ys.mean()) / ys.std(), rtol=1e-4)
    at_mean = [float(task.score(jnp.zeros(1), jnp.array([y]))) for y in targets]
    assert np.mean(at_mean) == pytest.approx(0, abs=1e-5)
    assert task.score(jnp.ones(1), jnp.ones(1)) == 1 and task.score_name == "variance explained"


def test_test_sequences_of_the_file_are_the_test(data):
    task = data.own(xs=XS, ys=LABELS, xs_test=XS[:4] + 1, ys_test=LABELS[:4])
    assert task.sizes == {"training": 18, "validation": 2, "test": 4}
    members, batch = every_row(dataclasses.replace(task, standardise=False), "test")
    np.testing.assert_array_equal(batch.xs, XS[:4] + 1)


def test_numbers_of_a_sequence_may_be_as_many_as_its_steps(data):
    task = data.own(xs=XS, ys=np.cumsum(XS[..., 0], axis=1))
    assert (task.output_size, dataclasses.replace(task, each_step=False).output_size) == (1, 5)
    task = dataclasses.replace(data.own(xs=XS, ys=LABELS), each_step=True)
    with pytest.raises(DataError, match="expected 5 steps on its second axis"):
        _ = task.output_size


def test_a_column_of_a_table_is_not_left_out_in_silence(data):
    columns = {"xs": [[[1.0]] * 3] * 9, "ys": [0, 1, 2] * 3, "lengths": [2] * 9}
    write_parquet(data.root / "more.parquet", columns)
    with pytest.raises(DataError, match="has the column 'lengths'"):
        _ = OwnSequences(str(data.root / "more.parquet")).output_size
