"""A run that is stopped before its first row, without its files, or while its pipe is silent."""

import dataclasses
import shutil
import signal
import sys
from pathlib import Path

import pytest
from streams import (
    FEW,
    assert_same_run,
    assert_same_state,
    kill_behind,
    quiet,
    records,
    rows_in,
)

from foretrace._runs.directory import RunError
from foretrace._runs.follow import Program
from foretrace.cli import _main as cli
from foretrace.stream.read import pipe as pipes
from foretrace.stream.read.lines import SourceError
from foretrace.stream.read.streams import Streams
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.run import Learning, follow

pytestmark = pytest.mark.usefixtures("twenty_rows_decide")
ROWS = 60
PAIR = "1,0\n2,1\n"


def bytes_of(run):
    return {path.name: path.read_bytes() for path in run.iterdir()}


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Return a configuration and the folder of its undisturbed run."""
    folder = tmp_path_factory.mktemp("ended")
    (folder / "a.csv").write_text("x,y\n" + "".join(f"{i % 3},{i * i % 2}\n" for i in range(ROWS)))
    config = StreamConfig(str(folder / "a.csv"), target="y", model=FEW, log_every=10)
    quiet(config, folder / "run")
    return config, folder / "run"


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


@pytest.fixture
def piped(ended, monkeypatch):
    """Return the configuration of a run on standard input, saved a few times in a second."""
    monkeypatch.setattr(Learning, "save_seconds", 0.3)
    return dataclasses.replace(ended[0], source="-", format="csv")


def begin(config, run):
    """Begin a run, and kill it before its first checkpoint."""
    kill_behind(config, run, 0)
    for name in ("checkpoint.safetensors", "metrics.jsonl"):
        (run / name).unlink()


def test_a_record_without_its_checkpoint_is_not_erased(ended, run, capsys):
    config, expected = ended
    shutil.copytree(expected, run)
    (run / "checkpoint.safetensors").unlink()
    before = bytes_of(run)
    words = "record but no checkpoint.*back.*new run.*remove metrics.jsonl"
    with pytest.raises(RunError, match=words):
        quiet(config, run, resume=True)
    assert cli.main(["predict", str(run), config.source]) == 2
    assert "record but no checkpoint" in capsys.readouterr().err
    assert bytes_of(run) == before
    (run / "metrics.jsonl").unlink()  # the choice that the message names
    quiet(config, run, resume=True)
    assert_same_run(run, expected)


def test_without_a_checkpoint_the_plan_stays_that_of_the_configuration(ended, run, tmp_path):
    config = dataclasses.replace(ended[0], source=str(tmp_path / "a.csv"))
    (tmp_path / "a.csv").write_text("x,y\n" + PAIR)
    begin(config, run)
    (tmp_path / "a.csv").write_text("x,y\n" + PAIR + "".join(f"a,{i}\n" for i in range(18)))
    for _ in range(2):  # the second time from its own checkpoint
        assert quiet(config, run, resume=True).position.row == 20


def test_a_checkpoint_with_another_plan_than_its_directory_is_refused(run, tmp_path, capsys):
    """Two runs of one configuration, whose file was another one at the beginning of each."""
    path, other = tmp_path / "a.csv", tmp_path / "other"
    config = StreamConfig(str(path), target="y", model=FEW)
    for folder, more in ((run, ""), (other, "red")):
        path.write_text("x,y\n" + "".join(f"{i}{more},{i % 2}\n" for i in range(30)))
        quiet(config, folder)
    shutil.copy(other / "checkpoint.safetensors", run)
    before = bytes_of(run)
    with pytest.raises(RunError, match="it and the checkpoint differ in plan; put the values"):
        quiet(config, run, resume=True)
    assert cli.main(["predict", str(run), str(path)]) == 2
    assert "differ in plan" in capsys.readouterr().err and bytes_of(run) == before


def test_a_pipe_goes_on_only_with_the_columns_of_the_run(piped, run, tmp_path, monkeypatch):
    """Where its first rows are lost, its columns must be named."""

    def feed(text, end=quiet, **options):
        (tmp_path / "in").write_text(text)
        with open(tmp_path / "in") as file, monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", file)
            return end(piped, run, **options)

    feed("x,y\n" + PAIR * 15, begin)
    before = bytes_of(run)
    with pytest.raises(SourceError, match="has other columns"):
        feed("71,0\n2,1\n" * 15, resume=True)
    assert bytes_of(run) == before
    assert feed("x,y\n" + PAIR * 15, resume=True).position.row == 30


def test_an_error_in_the_middle_of_a_step_keeps_the_checkpoint_before_it(ended, run, monkeypatch):
    """The labels have moved on, the network has not."""
    config, expected = dataclasses.replace(ended[0], checkpoint_every=30), ended[1]
    push, seen = Streams.push, []

    def fail(self, *arguments, **options):
        seen.append(arguments)
        came = push(self, *arguments, **options)
        if len(seen) == 50:
            raise TypeError("row 50")
        return came

    with monkeypatch.context() as patch:
        patch.setattr(Streams, "push", fail)
        with pytest.raises(TypeError, match="row 50"):
            quiet(config, run)
    assert rows_in(run) == 30
    quiet(config, run, resume=True)
    assert_same_run(run, expected)


def test_a_resumed_pipe_goes_on_with_rows_that_come_and_says_what_is_lost(
    ended, piped, run, pipe, monkeypatch, capsys, tmp_path
):
    with monkeypatch.context() as patch:
        patch.setattr(StreamConfig, "chunk", 1)  # another program has sums in another order
        quiet(ended[0], tmp_path / "file")
    data = Path(ended[0].source).read_bytes()
    header, whole = data[:4], data.index(b"\n", 100) + 1  # behind the 25th row
    pipe.write(data[: whole + 2])  # and the begin of a row
    follow(piped, run, rows=25)
    said = " ".join(capsys.readouterr().err.split())
    for words in ("cannot be read again", "not saved are lost", "name a --journal"):
        assert words in said

    def stop(*_):
        signal.raise_signal(signal.SIGTERM)
        return [], [], []

    with monkeypatch.context() as patch:
        patch.setattr(pipes.select, "select", stop)
        assert follow(piped, run, resume=True).stopped
    assert rows_in(run) == 25
    pipe.write(header + data[whole:])
    pipe.close()
    follow(piped, run, resume=True)
    assert rows_in(run) == ROWS and records(run) == records(tmp_path / "file")
    assert_same_state(run, tmp_path / "file")


def test_rows_of_a_pipe_are_saved_while_it_is_silent(piped, run, pipe, monkeypatch):
    save = Program.save

    def save_and_close(self):
        save(self)
        if rows_in(run) == 30:
            pipe.close()

    monkeypatch.setattr(Program, "save", save_and_close)
    pipe.write(b"x,y\n" + PAIR.encode() * 15 + b"1,")  # and the begin of a row
    position = quiet(piped, run).position
    assert position.row == 31 and position.is_torn
