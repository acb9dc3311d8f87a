"""A run on a stream: errors in rows, other columns, kill -9, and what a directory may hold."""

import dataclasses
import signal
import subprocess
import sys
import time

import pytest
from streams import CHUNKS, FEW, TINY, assert_same_run, quiet, rows_in

from foretrace._runs.directory import RunError
from foretrace._runs.files import LockedError, locked
from foretrace._runs.follow import DivergenceError
from foretrace.cli import _main as cli
from foretrace.experiment._train import read_config
from foretrace.stream.read.lines import ReplacedError, SourceError
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.predict import predictions

OFTEN = {"log_every": 50, "checkpoint_every": 70}
EVERY = "--log-every=50 --checkpoint-every=70"


BAD = [
    ("too,few", "line 84: 2 fields", {"model": CHUNKS, "delay": 2, "outliers": "auto"}),
    ("1,1e9,3", r"1e\+09", {"model": CHUNKS, "delay": 2}),
    ("1,2,1e9", r"1e\+09", {}),
]


@pytest.mark.usefixtures("twenty_rows_decide")
@pytest.mark.parametrize(("bad", "words", "more"), BAD)
def test_an_error_in_a_row_saves_the_state_before_it(bad, words, more, tmp_path):
    """A run goes on with the row repaired, or left out where it cannot be read."""
    path, rows = tmp_path / "a.csv", [f"{i % 5},{i % 7},{(i * 5) % 11}" for i in range(120)]
    options = {"task": "regression", "outliers": "stop", "model": FEW} | OFTEN
    config = StreamConfig(str(path), "z", **options | more)
    path.write_text("\n".join(["w,x,z", *rows[:82], bad, *rows[82:]]) + "\n")
    with pytest.raises(ValueError, match=words):
        quiet(config, tmp_path / "cut")
    assert rows_in(tmp_path / "cut") == 82
    if bad == "too,few":
        config = dataclasses.replace(config, bad_rows="skip")
    else:
        path.write_text("\n".join(["w,x,z", *rows]) + "\n")
    quiet(config, tmp_path / "cut", resume=True)
    quiet(config, tmp_path / "whole")
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def test_other_columns_are_refused_with_the_difference(files, tmp_path):
    run, path = tmp_path / "run", tmp_path / "a.csv"
    text = (files / "a.csv").read_text()
    path.write_text(text)
    options = {"ignore": ("t", "who", "empty"), "reset": "start", "model": FEW}
    config = StreamConfig(str(path), target="k", **options)
    quiet(config, run, rows=100)
    before = (run / "checkpoint.safetensors").read_bytes()
    path.write_text(text.replace(",c,", ",shade,", 1))
    with pytest.raises(ReplacedError, match="are not those that were read.*original file.*new run"):
        quiet(config, run, resume=True)
    assert (run / "checkpoint.safetensors").read_bytes() == before
    (tmp_path / "b.csv").write_text(text.replace(",start,", ",begin,", 1))
    (tmp_path / "b.jsonl").write_text('{"d": 1}\n')
    for name, words in {
        "a.csv": "lacks 'c', and .*'shade'.*give it the columns of the run",
        "b.csv": "lacks 'start'",
        "b.jsonl": "lacks 'a', 'b', 'c', 'y', 'start', and 'd' is",
    }.items():
        with pytest.raises(SourceError, match=words):
            predictions(run, str(tmp_path / name))
    # Objects may leave out what is missing, the target, too.
    (tmp_path / "b.jsonl").write_text('{"a": 1}\n')
    assert len(list(predictions(run, str(tmp_path / "b.jsonl"))[1])) == 1


@pytest.mark.full
def test_a_network_that_diverges_says_so(tmp_path):
    """The last rows before a checkpoint have no label."""
    rows = [f"{i * i % 7},{i * 5 % 11 / 7 if i % 100 < 80 else ''}" for i in range(300)]
    (tmp_path / "a.csv").write_text("\n".join(["x,y", *rows]) + "\n")
    model = dataclasses.replace(TINY, learning_rate=1e38)
    config = StreamConfig(str(tmp_path / "a.csv"), "y", task="regression", model=model, **OFTEN)
    words = r"\d\d steps in a row, up to row \d+; .*--learning-rate \(now 1e\+38"
    with pytest.raises(DivergenceError, match=words):
        quiet(config, tmp_path / "bad")


@pytest.mark.program
def test_kill_9_loses_nothing_but_rows_since_the_checkpoint(files, tmp_path):
    header, *lines = (files / "a.csv").read_text().splitlines(keepends=True)
    (tmp_path / "a.csv").write_text("".join([header, *lines * 20]))
    words = f"--target k --ignore t who empty y start --experts baselines row {EVERY} --run-dir"
    command = f"stream {tmp_path}/a.csv {words}"
    assert cli.main(f"{command} {tmp_path}/whole".split()) == 0
    killed = tmp_path / "killed"
    command = [sys.executable, "-m", "foretrace", *command.split(), str(killed)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        # The first checkpoint is from before the first row.
        while not ((killed / "checkpoint.safetensors").exists() and rows_in(killed)):
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(0.1)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    assert cli.main(["resume", str(killed)]) == 0
    assert_same_run(tmp_path / "whole", killed)


def test_a_run_is_not_shared_and_a_directory_is_looked_at_before_the_source(files, tmp_path):
    run, config = tmp_path / "run", StreamConfig(str(files / "a.csv"), target="k", model=FEW)
    run.mkdir()
    quiet(config, run, rows=5)
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    with pytest.raises(RunError, match="holds a run already"):
        quiet(dataclasses.replace(config, source=str(tmp_path / "absent.csv")), run)
    with pytest.raises(RunError, match="a run of another command"):
        read_config(run)
    in_use = pytest.raises(LockedError, match="in use by another foretrace process")
    with locked(run), in_use:
        quiet(config, run, resume=True)
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before
