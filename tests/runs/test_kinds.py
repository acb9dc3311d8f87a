"""Every kind of run: stopped, killed or forged, it ends as undisturbed or says what is wrong."""

import dataclasses
import json
import shutil
import signal
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from tiers import fast
from trained import AGENT, STREAM, TRAINED

from foretrace import experiment, rl
from foretrace._runs import directory
from foretrace._runs.checkpoint import CheckpointError, _read
from foretrace._runs.directory import RunError, TakenError, read_config_as
from foretrace._runs.metrics import MetricsError, MetricsLog, read_metrics
from foretrace.cli import _main as cli
from foretrace.stream.runs.run import follow


class Kind(NamedTuple):
    """A kind of run: how it is run, its configuration, and the number of lines of its record."""

    run: Any
    config: Any
    lines: int


KINDS = {
    "train": Kind(experiment.train, TRAINED, 11),
    "rl": Kind(rl.train, AGENT, 5),
    "stream": Kind(follow, STREAM, 5),
}
MACHINE = {"seconds", "rows_per_second", "resident_mib", "microseconds"}


class Run(NamedTuple):
    """A kind of run in this folder, where its data are."""

    kind: Kind

    def __call__(self, folder, **changes):
        return self.kind.run(
            dataclasses.replace(self.kind.config, **changes.pop("config", {})),
            folder,
            show_progress=False,
            **changes,
        )


@pytest.fixture(scope="module", params=fast(["rl", "stream", "train"]))
def made(request, tmp_path_factory):
    """Return a kind of run and the folder of an undisturbed one, which is the present folder.

    The fast tier has the others in `tests/experiment` and `tests/stream`.
    """
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch, jax.numpy_dtype_promotion("standard"):
        patch.chdir(folder)
        rows = [f"{i % 3},{i % 2 + 0.5}\n" for i in range(60)]
        (folder / "a.csv").write_text("".join(["x,y\n", *rows]))
        run = Run(KINDS[request.param])
        run(folder / "whole")
        yield run, folder / "whole"


def content(folder):
    """Return what a run has learned and recorded, without what depends on the machine."""
    beside, arrays = _read(folder / "checkpoint.safetensors")
    lines = [
        {name: value for name, value in line.items() if name not in MACHINE}
        for line in read_metrics(folder / "metrics.jsonl")
    ]
    kept = {name: v for name, v in beside.extra.items() if name not in ("seconds", "record")}
    bits = {name: (array.shape, array.dtype, array.tobytes()) for name, array in arrays.items()}
    return bits, json.dumps([lines, kept])


class Killed(BaseException):
    """What ends a run between any two lines, as kill -9."""


def at_line(patch, number, event):
    """Let something happen behind a line of a record; count from 1."""
    write, written = MetricsLog.write, []

    def disturbed(log, *arguments, **values):
        write(log, *arguments, **values)
        written.append(1)
        if len(written) == number:
            event()

    patch.setattr(MetricsLog, "write", disturbed)


def kill():
    raise Killed


EVENTS = {"stopped": lambda: signal.raise_signal(signal.SIGTERM), "killed": kill}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("share", fast([0.5, 0.0, 1.0]))
def test_a_disturbed_run_ends_as_an_undisturbed_one(made, tmp_path, event, share):
    run, whole = made
    line = 1 + round(share * (run.kind.lines - 2))
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.MonkeyPatch.context() as patch:
        at_line(patch, line, EVENTS[event])
        try:
            ended = run(tmp_path / "run")
            # Behind the last line, an agent's run is at its end.
            assert share == 1.0 or ended.scores is None or getattr(ended, "stopped", False)
        except Killed:
            assert event == "killed"
            with open(tmp_path / "run" / "metrics.jsonl", "a") as file:
                file.write('{"kind": "tra')  # a line that was being written
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    run(tmp_path / "run", resume=True)
    assert content(tmp_path / "run") == content(whole)
    assert cli.main(["check", str(tmp_path / "run")]) == 0


def test_a_finished_run_is_left_as_it_is(made):
    run, whole = made
    before = {path: path.read_bytes() for path in whole.iterdir() if path.is_file()}
    assert len(read_metrics(whole / "metrics.jsonl")) == run.kind.lines
    first, again = run(whole, resume=True), run(whole, resume=True)
    assert first.scores == again.scores and all(map(np.isfinite, dict_of(first.scores).values()))
    with pytest.raises(TakenError, match="holds a run already.*foretrace resume"):
        run(whole)
    if "steps" in vars(run.kind.config):
        with pytest.raises(RunError, match=r"steps=30, because 40 are recorded.*40 or more"):
            run(whole, resume=True, config={"steps": 30})
    ours = {path: path.read_bytes() for path in before if path.suffix != ".safetensors"}
    assert ours == {path: before[path] for path in ours}


def dict_of(scores):
    return scores._asdict() if hasattr(scores, "_asdict") else scores


FORGED = {
    "cut checkpoint": ("checkpoint.safetensors", lambda data: data[:500], "not a complete"),
    "cut configuration": ("config.json", lambda data: data[:40], "damaged"),
    "changed configuration": (
        "config.json",
        lambda data: data.replace(b'"seed": 0', b'"seed": 1'),
        "was changed since the run began; .*seed: 1, 0",
    ),
    "foreign record": ("metrics.jsonl", lambda data: b"hello\n" + data, "line 1 is not a line"),
    "result without seconds": (
        "metrics.jsonl",
        lambda data: b'"second"'.join(data.rsplit(b'"seconds"', 1)),
        "KeyError: 'seconds'",
    ),
}


ONE_KIND = pytest.mark.parametrize("made", ["rl"], indirect=True)
"""What all kinds share: reading, checking and refusing the files of a run."""


@ONE_KIND
@pytest.mark.parametrize("what", FORGED)
def test_a_forged_run_is_refused_and_stays_as_it_is(made, tmp_path, what):
    run, whole = made
    name, forge, message = FORGED[what]
    shutil.copytree(whole, tmp_path / "run")
    path = tmp_path / "run" / name
    path.write_bytes(forge(path.read_bytes()))
    before = {path: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()}
    with pytest.raises((CheckpointError, MetricsError, RunError), match=message):
        config = read_config_as(tmp_path / "run", type(run.kind.config))
        run.kind.run(config, tmp_path / "run", resume=True, show_progress=False)
    assert {path: path.read_bytes() for path in before} == before
    # A line without one of its values is whole.
    assert (cli.main(["check", str(tmp_path / "run")]) == 0) == (what == "result without seconds")
    words = ["export", str(tmp_path / "run"), "--format", "c", "--out", str(tmp_path / "a.c")]
    assert name == "metrics.jsonl" or cli.main(words) == 2


@ONE_KIND
def test_a_record_that_was_cut_is_told_and_the_run_goes_on(made, tmp_path, capsys):
    run, whole = made
    shutil.copytree(whole, tmp_path / "run")
    (tmp_path / "run" / "metrics.jsonl").write_text("")
    assert cli.main(["check", str(tmp_path / "run")]) == 1
    assert "is cut" in capsys.readouterr().out
    run.kind.run(run.kind.config, tmp_path / "run", resume=True)
    assert "lacks these lines" in capsys.readouterr().err


@ONE_KIND
def test_the_learning_step_of_an_agent_is_not_exported(made, tmp_path, capsys):
    arguments = ["--format", "c", "--learn", "--out", str(tmp_path / "agent.c")]
    assert cli.main(["export", str(made[1]), *arguments]) == 2
    assert "draws actions" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_of_two_processes_that_begin_at_once_the_first_one_wins(tmp_path, monkeypatch):
    monkeypatch.setattr(directory, "check_free", lambda path: None)  # both have looked
    run = directory.create(tmp_path / "run", KINDS["train"].config)
    before = run.config.read_bytes()
    with pytest.raises(TakenError):
        directory.create(run.path, KINDS["rl"].config)
    assert run.config.read_bytes() == before
