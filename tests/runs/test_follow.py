"""The course that all runs share, by a program of a few lines."""

import dataclasses
import time

import jax.numpy as jnp
import pytest

from foretrace import CheckpointError, read_extra, save
from foretrace._runs.appended import AppendedFile
from foretrace._runs.follow import REFUSED_IN_A_ROW, DivergenceError, Program, follow
from foretrace._runs.metrics import read_metrics
from foretrace._runs.saved import RunKind


@dataclasses.dataclass(frozen=True)
class Sums:
    """A run that adds up the numbers of its steps."""

    steps: int = 12
    checkpoint_every: int | None = 5


class Adding(Program):
    """A block of two steps, and what a test does behind it."""

    saves: list

    def init(self):
        return jnp.zeros(())

    def block(self):
        self.state += 2 * self.step + 1
        self.step += 2
        self.record("sum", value=float(self.state))
        self.disturbed()

    def disturbed(self):
        """Do nothing."""

    def kept(self):
        self.saves.append(self.step)
        return super().kept()

    def result(self):
        return {"sum": float(self.state)}


@pytest.fixture
def add(tmp_path):
    """Return a function that runs the sums, disturbed in some way."""

    def add(disturbed=None, resume=False, is_whole=True, **options):
        add.saves.clear()
        given = {"saves": add.saves, "is_whole": is_whole}
        given |= {} if disturbed is None else {"disturbed": disturbed}
        program, kind = type("Disturbed", (Adding,), given), RunKind(Sums, may_grow=("steps",))
        config = Sums(**options)
        return follow(kind, config, tmp_path, program, resume=resume, show_progress=False)

    add.saves = []
    return add


def failing(program):
    if program.step == 8:
        raise ValueError("of the data")


def test_a_state_is_saved_behind_each_multiple_and_at_the_end(add, tmp_path):
    assert add().scores == {"sum": 66.0} and add.saves == [6, 10, 12]
    assert add(resume=True).scores["sum"] == 66.0 and add.saves == []  # its result is recorded
    assert add(resume=True, steps=14).scores["sum"] == 91.0 and add.saves == [14]
    steps = [(line["kind"], line["step"]) for line in read_metrics(tmp_path / "metrics.jsonl")]
    assert steps == [("sum", s) for s in range(2, 14, 2)] + [
        ("result", 12),
        ("sum", 14),
        ("result", 14),
    ]


def test_a_state_is_saved_when_its_seconds_have_passed(add, monkeypatch):
    monkeypatch.setattr(Adding, "save_seconds", 0.05)
    add(lambda self: time.sleep(0.1), steps=4, checkpoint_every=None)
    assert add.saves == [2, 4, 4]


@pytest.mark.parametrize("is_whole", [True, False])
def test_an_error_in_a_block_saves_a_state_that_is_whole(add, tmp_path, is_whole):
    with pytest.raises(ValueError, match="of the data"):
        add(failing, is_whole=is_whole)
    assert read_extra(tmp_path / "checkpoint.safetensors")["step"] == (8 if is_whole else 6)
    assert add(resume=True).scores["sum"] == 66.0


def test_an_error_is_told_also_where_the_state_cannot_be_saved(add, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("foretrace._runs.follow.save", full)
    with pytest.raises(ValueError, match="of the data"):
        add(failing, checkpoint_every=None)


def test_the_record_is_on_the_disk_before_a_checkpoint_knows_of_it(add, monkeypatch):
    done = []
    monkeypatch.setattr(AppendedFile, "sync", lambda _: done.append("record"))
    monkeypatch.setattr("foretrace._runs.follow.save", lambda *_, **__: done.append("checkpoint"))
    add()
    assert done == ["record", "checkpoint"] * 3


def test_seconds_and_refusals_in_a_row_go_on_where_a_run_was_resumed(add):
    def refused(program):
        program.refused += 1
        time.sleep(0.05)

    first = add(refused, steps=6).seconds
    seen = []
    second = add(lambda self: seen.append(self.refused), resume=True, steps=8).seconds
    assert seen == [3] and second >= first >= 0.15


def test_a_run_that_diverged_in_its_last_block_does_not_end_well_when_it_is_resumed(add):
    def refused(program):
        program.refused = REFUSED_IN_A_ROW - (program.step < 12)
        program.check_refused(program.refused, program.step, "try less")

    with pytest.raises(DivergenceError, match=r"20 steps in a row, up to step 12; try less"):
        add(refused)
    with pytest.raises(DivergenceError, match="begin a new run"):
        add(resume=True)


@pytest.mark.parametrize("step", [-2, 5])
def test_a_checkpoint_of_no_step_of_the_run_is_refused(add, tmp_path, step):
    path = tmp_path / "checkpoint.safetensors"
    add(steps=4)
    save(path, jnp.zeros(()), extra=read_extra(path) | {"step": step})
    with pytest.raises(CheckpointError, match=f"is at step {step}, expected 0 to 4"):
        add(resume=True, steps=4)
