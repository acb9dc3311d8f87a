"""A run that ends anywhere, by a kill or an error, and the effect of `resume` after it."""

import dataclasses
import json
import shutil
import sys
import threading
import time

import pytest
from streams import FEW, assert_same_run, kill_behind, quiet, rows_in

from foretrace._rows.lines import SourceError
from foretrace._runs.directory import RunError
from foretrace._runs.metrics import read_metrics
from foretrace.cli import _main as cli
from foretrace.stream import _first_look, _loop
from foretrace.stream._config import StreamConfig
from foretrace.stream._run import follow

ROWS = 60


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a configuration and the folder of its undisturbed run."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "a.csv").write_text("x,y\n" + "".join(f"{i % 3},{i * i % 2}\n" for i in range(ROWS)))
    config = StreamConfig(str(folder / "a.csv"), target="y", model=FEW, log_every=10, look_ahead=20)
    quiet(config, folder / "run")
    return config, folder / "run"


STATES = {
    "configuration only": ["config.json"],
    "configuration and empty record": ["config.json", "metrics.jsonl"],
    "checkpoint before the first row": ["config.json", "checkpoint.safetensors"],
    "checkpoint and the same record": ["config.json", "checkpoint.safetensors", "metrics.jsonl"],
    "checkpoint and a longer record": ["config.json", "checkpoint.safetensors", "metrics.jsonl"],
    "finished": ["config.json", "checkpoint.safetensors", "metrics.jsonl"],
}


@pytest.mark.parametrize("state", STATES)
def test_every_state_that_a_kill_leaves_goes_on_to_the_same_end(whole, tmp_path, state):
    config, expected = whole
    run, row = (
        tmp_path / "run",
        {"checkpoint and the same record": 30, "checkpoint and a longer record": 35},
    )
    if state == "finished":
        shutil.copytree(expected, run)
    else:
        every = 30 if state in row else ROWS + 1
        kill_behind(dataclasses.replace(config, checkpoint_every=every), run, row.get(state, 5))
    for path in run.iterdir():
        if path.name not in STATES[state]:
            path.unlink()
    if state == "configuration and empty record":
        (run / "metrics.jsonl").write_bytes(b"")
    if "record" in state and state in row:
        assert rows_in(run) == 30 and read_metrics(run / "metrics.jsonl")[-1]["step"] == 30
        if state == "checkpoint and a longer record":
            with open(run / "metrics.jsonl", "a") as file:
                file.write(json.dumps({"kind": "stream", "step": 40}) + '\n{"kind": "str')
    quiet(config, run, resume=True)
    assert_same_run(run, expected)


@pytest.mark.parametrize("torn", [False, True])
def test_a_record_without_its_checkpoint_is_not_erased(whole, tmp_path, capsys, torn):
    config, expected = whole
    run = tmp_path / "run"
    shutil.copytree(expected, run)
    (run / "checkpoint.safetensors").unlink()
    if torn:
        (run / "metrics.jsonl").write_text('{"kind": "str')
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    with pytest.raises(
        RunError, match="record but no checkpoint.*back.*new run.*remove metrics.jsonl"
    ):
        quiet(config, run, resume=True)
    assert cli.main(["predict", str(run), config.source]) == 2
    assert "record but no checkpoint" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    (run / "metrics.jsonl").unlink()  # the choice that the message names
    quiet(config, run, resume=True)
    assert_same_run(run, expected)


def test_without_a_checkpoint_the_plan_stays_that_of_the_configuration(whole, tmp_path):
    config, run = dataclasses.replace(whole[0], source=str(tmp_path / "a.csv")), tmp_path / "run"
    (tmp_path / "a.csv").write_text("x,y\n1,0\n2,1\n")
    kill_behind(config, run, 0)
    for name in ("checkpoint.safetensors", "metrics.jsonl"):
        (run / name).unlink()
    (tmp_path / "a.csv").write_text("x,y\n1,0\n2,1\n" + "".join(f"a,{i}\n" for i in range(18)))
    for _ in range(2):  # the second time from its own checkpoint
        assert quiet(config, run, resume=True).position.row == 20


def test_a_pipe_whose_first_rows_are_lost_goes_on_only_where_its_columns_are_named(
    whole, tmp_path, monkeypatch
):
    config, run = piped(whole[0]), tmp_path / "run"

    def feed(text, end, **options):
        (tmp_path / "in").write_text(text)
        with open(tmp_path / "in") as file:
            monkeypatch.setattr(sys, "stdin", file)
            return end(config, run, **options)

    feed("x,y\n" + "1,0\n2,1\n" * 15, lambda *_: kill_behind(config, run, 0))
    for name in ("checkpoint.safetensors", "metrics.jsonl"):
        (run / name).unlink()
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    with pytest.raises(SourceError, match="has other columns"):
        feed("71,0\n2,1\n" * 15, follow, resume=True, show_progress=False)
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
    result = feed("x,y\n" + "1,0\n2,1\n" * 15, follow, resume=True, show_progress=False)
    assert result.position.row == 30


def test_a_damaged_plan_is_said(whole, tmp_path):
    config, run = whole[0], tmp_path / "run"
    kill_behind(config, run, 0)
    for name in ("checkpoint.safetensors", "metrics.jsonl"):
        (run / name).unlink()
    data = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(data | {"plan": {"columns": [1]}}))
    with pytest.raises(ValueError, match="must be Column"):
        quiet(config, run, resume=True)


def when(condition, action):
    """Do something as soon as something is true; in a thread."""

    def watch():
        end = time.monotonic() + 120
        while not condition() and time.monotonic() < end:
            time.sleep(0.01)
        action()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


def piped(config, **options):
    return dataclasses.replace(config, source="-", format="csv", **options)


def test_rows_of_a_pipe_are_saved_while_it_is_silent(whole, tmp_path, pipe):
    run, seen = tmp_path / "run", []
    pipe.write(b"x,y\n" + b"1,0\n2,1\n" * 15 + b"1,")  # and the begin of a row

    def all_are_saved():
        if (run / "checkpoint.safetensors").exists():
            seen.append(rows_in(run))
        return seen[-1:] == [30]

    thread = when(all_are_saved, pipe.close)
    result = quiet(piped(whole[0], checkpoint_seconds=0.3), run)
    thread.join()
    assert seen[-1] == 30 and result.position.row == 31 and result.position.is_torn


def test_an_error_of_saving_while_a_pipe_is_silent_is_not_called_one_of_the_pipe(
    whole, tmp_path, pipe, monkeypatch
):
    save, told = _loop.StreamLoop._save, []

    def fail(self, **options):
        if self.position.row:
            told.append(self.position.row)
            raise OSError(28, "No space left on device")
        save(self, **options)

    monkeypatch.setattr(_loop.StreamLoop, "_save", fail)
    pipe.write(b"x,y\n" + b"1,0\n2,1\n" * 15)
    with pytest.raises(OSError, match="No space left") as error:
        quiet(piped(whole[0], checkpoint_seconds=0.3), tmp_path / "run")
    assert not isinstance(error.value, SourceError) and told


@pytest.mark.parametrize("is_slow", [True, False])
def test_a_slow_pipe_is_told_what_the_run_waits_for(
    whole, tmp_path, pipe, monkeypatch, capsys, is_slow
):
    monkeypatch.setattr(_first_look, "PATIENCE", 0.1 if is_slow else 60.0)
    said = threading.Event()
    say = _first_look.ProgressBar.say
    monkeypatch.setattr(
        _first_look.ProgressBar, "say", lambda self, text: (say(self, text), said.set())
    )
    pipe.write(b"x,y\n" + b"1,0\n2,1\n" * 6)

    def write_more():
        pipe.write(b"1,0\n2,1\n" * 6)
        pipe.close()

    thread = when(said.is_set if is_slow else lambda: True, write_more)
    follow(piped(whole[0]), tmp_path / "run")
    thread.join()
    err = capsys.readouterr().err
    assert (
        err.count("waiting for the first 20 rows of standard input, of which 12 have come")
        == is_slow
    )
    assert err.count("waiting") == is_slow and ("--look-ahead" in err) == is_slow
