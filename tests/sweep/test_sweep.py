"""A sweep is its trials, whichever process runs them and whatever happens to it."""

import contextlib
import dataclasses
import io
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from functools import cache, partial
from pathlib import Path

import pytest
from processes import printed, rows_of_table
from rich.console import Console
from trained import TRAINED

from foretrace import experiment
from foretrace._options.cells import LRU, MinGRU
from foretrace._runs.directory import create
from foretrace._runs.files import locked
from foretrace._runs.metrics import read_metrics
from foretrace.cli import _main as cli
from foretrace.stream.runs.config import StreamConfig
from foretrace.sweep import Sweep, _run, run, study
from foretrace.sweep._kinds import KINDS
from foretrace.sweep._report import table
from foretrace.sweep._space import applied

TINY = (
    "--task.pattern-length=3 --task.padding=1 --task.bits=2 --network.depth=1 "
    "--network.model-size=6 --state-size=4 --batch-size=4 --steps=1200 "
    "--log-every=50 --evaluate-every=400 --align-every=None --checkpoint-every=50 "
    "--validation-sequences=8 --final-sequences=8"
).split()
GRID = ["--grid", "optimizer.learning-rate=1e-4,3e-2"]
SMALL = dataclasses.replace(TRAINED, optimizer=experiment.OptimizerConfig(clip=None))
SEARCH = ("optimizer.learning-rate=log:1e-5:1e-1", "network.depth=1:4")


ONE, STORAGE = ("rule=online,bptt",), "FORETRACE_SWEEP_STORAGE"


def said(*arguments):
    """Run a command in this process; return exit code and output."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main([*map(str, arguments)])
    return code, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweeps") / "whole"
    code, out, err = said("sweep", "copy", "--run-dir", folder, *GRID, *TINY)
    assert code == 0, err
    return folder, out, err


def records(folder):
    """Return what each run of a sweep has recorded, but for its seconds."""
    return {
        path.name: [
            {k: v for k, v in line.items() if k != "seconds"}
            for line in read_metrics(path / "metrics.jsonl")
        ]
        for path in (folder / "trials").iterdir()
    }


def results(trials):
    return [(trial.params, trial.value, trial.state.name) for trial in trials]


@pytest.mark.program
def test_a_grid_ends_with_its_trials_best_first_by_validation_alone(whole):
    folder, out, err = whole
    trials = study(folder).trials
    assert {t.params["optimizer.learning-rate"]: t.state.name for t in trials} == dict.fromkeys(
        ["1e-4", "3e-2"], "COMPLETE"
    )
    for trial in trials:
        found = records(folder)[trial.user_attrs["run"].removeprefix("trials/")]
        last = [line for line in found if line["kind"] == "validation"][-1]
        assert trial.value == last["loss"] != found[-1]["loss"]  # of the test sequences
        assert f"trial {trial.number}: loss {trial.value:.4g}" in err
    best = study(folder).best_trial
    assert out.index("3e-2") < out.index("1e-4") and best.params == trials[best.number].params
    assert f"best: optimizer.learning-rate=3e-2; more: foretrace report {folder}/trials/" in out
    assert said("report", str(folder))[:2] == (0, out)
    code, out, _ = said("check", str(folder))
    assert code == 0 and out.count("checkpoint.safetensors: whole") == 2


@pytest.mark.program
def test_a_killed_process_and_a_stopped_sweep_change_nothing(whole, tmp_path):
    folder = tmp_path / "sweep"
    line = ["sweep", "copy", "--run-dir", str(folder), *GRID, *TINY]
    with subprocess.Popen([sys.executable, "-m", "foretrace", *line]) as process:
        wait_for_file(folder)
        process.kill()
    assert process.returncode == -signal.SIGKILL
    began = {path: path.read_bytes() for path in folder.glob("trials/*/config.json")}

    def stop():
        wait_for_file(folder, after=time.time_ns())
        os.kill(os.getpid(), signal.SIGINT)

    (meddler := threading.Thread(target=stop)).start()
    code, out, err = said("resume", folder)
    meddler.join()
    assert code == cli.STOPPED and "stopped after 0 of 2 trials" in out, err
    assert out.endswith(f"foretrace resume {folder}\n")
    assert [trial.state.name for trial in study(folder).trials] == ["RUNNING"] * 2
    code, _, err = said("resume", folder, "--workers", 2)
    assert code == 0, err
    assert results(study(folder).trials) == results(study(whole[0]).trials)
    assert records(folder) == records(whole[0])
    assert all(path.read_bytes() == text for path, text in began.items()) and len(began) == 1


@pytest.fixture
def postgres():
    """Yield the address of a database of PostgreSQL, which runs until the test ends."""
    pytest.importorskip("psycopg", reason="pip install 'psycopg[binary]'")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not found:
        pytest.skip("apt install postgresql")
    with tempfile.TemporaryDirectory() as name:
        own = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if own:  # it refuses to be run by root
            shutil.chown(name, "postgres")
        data = f"{name}/data"
        call = partial(subprocess.run, cwd=name, check=True, stdout=subprocess.DEVNULL)
        call([*own, found[-1] / "initdb", "-A", "trust", "-U", "me", data])
        control = [*own, found[-1] / "pg_ctl", "-D", data, "-l", f"{data}/log", "-w"]
        call([*control, "-o", f"-F -k {name} -c listen_addresses=", "start"])
        try:
            yield f"postgresql+psycopg://me@/postgres?host={name}"
        finally:
            call([*control, "-m", "immediate", "stop"])


@pytest.mark.program
def test_workers_share_a_study_in_postgresql_and_one_is_killed(
    whole, tmp_path, postgres, monkeypatch
):
    monkeypatch.setenv(STORAGE, postgres)
    folder = tmp_path / "sweep"
    line = [sys.executable, "-m", "foretrace", "sweep", "copy", "--run-dir", str(folder)]
    with subprocess.Popen([*line, *GRID, *TINY]) as first:
        wait_for_file(folder, "config.json")
        second = subprocess.Popen([*line[:3], "resume", str(folder)])
        wait_for_file(folder, "trials/*/checkpoint.safetensors", count=2)  # one of each process
        first.kill()
    assert second.wait(300) == 0 and first.returncode == -signal.SIGKILL
    found = rows_of_table(printed(*line[:3], "report", folder))
    monkeypatch.delenv(STORAGE)
    assert found == rows_of_table(said("report", whole[0])[1]) and len(found) == 2
    assert records(folder) == records(whole[0]) and not (folder / "study.log").exists()


def wait_for_file(folder, name="trials/*/checkpoint.safetensors", after=0, count=1):
    for _ in range(4800):
        if sum(file.stat().st_mtime_ns > after for file in folder.glob(name)) >= count:
            return
        time.sleep(0.025)
    raise AssertionError("the sweep did not get on")


CHEAP = KINDS[experiment.Config]._replace(check=cache(KINDS[experiment.Config].check))
"""A command whose configurations are each traced once for all tests."""


def constant(config):
    return 0.5


@pytest.fixture
def swept(monkeypatch, tmp_path):
    """Return what runs a sweep whose trials end at once, with a score of their configuration."""
    monkeypatch.setitem(KINDS, experiment.Config, CHEAP)

    def swept(asked, score=constant, folder="sweep", **options):
        monkeypatch.setattr(
            _run, "scores_of", lambda config, *_: dict.fromkeys(("loss", "accuracy"), score(config))
        )
        return run(asked, tmp_path / folder, show_progress=False, **options)

    return swept


def test_a_stopped_search_goes_on_as_one_that_was_not(swept):
    def score(config):
        return abs(config.optimizer.learning_rate - 1e-3) + config.network.depth

    def stopped(config):
        if config not in begun:
            begun.append(config)
            if len(begun) == 11:  # the first ten trials are random
                raise KeyboardInterrupt
        return score(config)

    begun, asked = [], Sweep(SMALL, search=SEARCH, trials=12)
    found = swept(asked, score)
    rates = [trial.params["optimizer.learning-rate"] for trial in found.trials]
    assert found.best_params["network.depth"] == 1
    assert 1e-4 < found.best_params["optimizer.learning-rate"] < 1e-2
    # In magnitudes.
    assert all(1e-5 <= rate <= 1e-1 for rate in rates) and sum(rate < 1e-3 for rate in rates) > 3
    with pytest.raises(KeyboardInterrupt):
        swept(asked, stopped, folder="stopped")
    again = swept(asked, stopped, folder="stopped", resume=True)
    assert len(begun) == 12 and results(again.trials) == results(found.trials)


def test_a_trial_that_fails_says_why_and_is_not_the_end(swept):
    def score(config):
        if config.optimizer.learning_rate == 1:
            raise experiment.DivergenceError("training has diverged")
        return config.optimizer.learning_rate

    # One combination makes no network, although each of its values does.
    cells = ("optimizer.learning-rate=1,0.5", "network.cell=lru,gru", "network.r-min=0,0.1")
    asked = Sweep(SMALL, grid=cells)
    found = swept(asked, score)
    reasons = {
        (t.params["optimizer.learning-rate"], t.params["network.cell"]): t.user_attrs.get("reason")
        for t in found.trials
    }
    assert found.best_value == 0.5 and len(found.trials) == 8
    assert reasons["1", "lru"] == "training has diverged" and reasons["0.5", "lru"] is None
    assert "r_min is no option of the cell gru" in reasons["1", "gru"]
    assert "failed: training has diverged" in " ".join(sum(lines(asked, found), []))


def lines(asked, found):
    """Return the words of each line of the table of a sweep."""
    console = Console(width=200, file=io.StringIO())
    console.print(table(asked, found.trials))
    text = console.file.getvalue().replace("│", " ")
    return [line.split() for line in text.splitlines()[3:-1]]


def test_the_best_score_may_be_the_largest_and_is_a_number(swept):
    asked = Sweep(SMALL, grid=("network.depth=1,3,2,4",), score="accuracy")
    found = swept(
        asked, lambda config: {4: math.inf}.get(config.network.depth, config.network.depth)
    )
    assert found.best_params == {"network.depth": "3"}
    (failed,) = [trial for trial in found.trials if trial.state.name == "FAIL"]
    assert "no finite accuracy in {'loss': inf" in failed.user_attrs["reason"]
    assert [line[0] for line in lines(asked, found)] == ["3", "2", "1", "4"]


def test_several_seeds_are_one_line_with_their_mean(swept):
    asked = Sweep(SMALL, grid=("network.depth=1,2", "seed=0,2"))
    found = swept(asked, lambda config: config.seed + config.network.depth)
    first, second, *_ = lines(asked, found)
    assert first[:2] == ["1", "2"] and {first[2], second[0]} == {"1", "3"}


def test_a_trial_of_another_process_is_left_to_it_until_it_ends(swept, tmp_path):
    folder, seen, stack = tmp_path / "sweep", [], contextlib.ExitStack()
    asked = Sweep(SMALL, search=SEARCH, trials=3)

    def score(config):
        seen.append(config)
        if len(seen) == 2:  # the other process ends when the rest is done
            threading.Timer(0.3, stack.close).start()
        return 0.5

    create(folder, asked, study="shared")
    stack.enter_context(locked(folder, ".trial-1.lock"))
    ends = [trial.datetime_complete for trial in swept(asked, score, resume=True).trials]
    assert len(seen) == 3 and ends[1] == max(ends)


def test_a_trial_that_kills_its_processes_is_given_up(swept, tmp_path):
    asked, folder = Sweep(SMALL, grid=ONE), tmp_path / "sweep"
    create(folder, asked, study="lost")
    study(folder, begin=True).ask().set_user_attr("losses", _run.LOSSES)
    found = swept(asked, resume=True).trials
    assert [trial.state.name for trial in found] == ["FAIL", "COMPLETE"]
    assert found[0].user_attrs["reason"] == "its process was lost 4 times"


def test_a_report_reads_a_study_and_a_torn_last_line_is_cut_before_the_next(swept, tmp_path):
    asked = Sweep(SMALL, search=SEARCH, trials=2)
    first, journal = results(swept(asked).trials), tmp_path / "sweep" / "study.log"
    torn = journal.read_bytes() + b'{"op_code":5,"worker'
    journal.write_bytes(torn)
    assert said("report", tmp_path / "sweep")[0] == 0 and journal.read_bytes() == torn
    swept(dataclasses.replace(asked, trials=3), resume=True)
    found = results(study(tmp_path / "sweep").trials)
    assert found[:2] == first and found[2][2] == "COMPLETE"
    journal.unlink()
    code, _, err = said("report", tmp_path / "sweep")
    assert code == 2 and "nothing to report yet" in err and not journal.exists()


def test_who_comes_later_adds_nothing_but_more_trials(swept):
    first = results(swept(Sweep(SMALL, search=SEARCH, trials=2)).trials)
    longer = Sweep(SMALL, search=SEARCH, trials=3)
    found = results(swept(longer, resume=True).trials)
    assert found[:2] == first and len(found) == 3
    with pytest.raises(experiment.RunError, match="another configuration"):
        swept(Sweep(SMALL, search=SEARCH[:1]), resume=True)
    with pytest.raises(experiment.RunError, match="foretrace resume"):
        swept(longer)


@pytest.mark.full
def test_a_study_may_be_in_a_database(swept, tmp_path, monkeypatch):
    monkeypatch.setenv(STORAGE, f"sqlite:///{tmp_path / 'a.db'}")
    for folder in ("one", "two"):  # each has a study of its own
        assert len(swept(Sweep(SMALL, grid=ONE), folder=folder).trials) == 2
    monkeypatch.delenv(STORAGE)
    code, _, err = said("report", str(tmp_path / "one"))
    assert code == 2 and STORAGE in err
    (tmp_path / "one" / "study.log").write_text("{damaged\n")
    code, _, err = said("report", str(tmp_path / "one"))
    assert code == 2 and "study.log cannot be opened" in err and "STORAGE" not in err


def test_workers_need_file_locks(swept, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with pytest.raises(experiment.RunError, match="workers=2 needs file locks"):
        swept(Sweep(SMALL, grid=ONE), workers=2)


def test_values_are_those_of_the_options():
    changed = applied(
        SMALL, {"network.timescales": "1 100", "network.glu": "false", "optimizer.clip": "2"}
    )
    assert changed.network.cell == LRU(4, timescales=(1.0, 100.0))  # its other settings stay
    assert (changed.network.glu, changed.optimizer.clip) == (False, 2.0)
    assert applied(SMALL, {"network.cell": "lru"}) == SMALL
    none = applied(SMALL, {"network.norm": "none", "optimizer.clip": "none"})
    assert (none.network.norm, none.optimizer.clip) == ("none", None)
    stream = StreamConfig("a.csv", target="y", member="m")
    assert applied(stream, {"member": "none"}).member is None
    other = applied(SMALL, {"network.timescales": "1 9", "network.cell": "min-gru", "chunk": "3"})
    assert other.network.cell == MinGRU(timescales=(1.0, 9.0)) and other.chunk == 3
    found = Sweep(SMALL, search=("chunk=log:2:8", "optimizer.clip=1:2")).dimensions
    assert found["chunk"].high == 8 and type(found["chunk"].high) is int and found["chunk"].log
    assert type(found["optimizer.clip"].high) is float


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "--grid or --search"),
        (
            "--grid learning-rate=1",
            "--grid learning-rate=1: Unrecognized options: --learning-rate, 1; Perhaps you meant: "
            "--lr, --optimizer.learning-rate",
        ),
        ("--grid rule=online,bptt2", "rule='bptt2' is unknown; choose one of BPTT, HYBRID"),
        ("--grid network.depth=1:4", "for --search"),
        ("--grid network.depth=1,1", "the same value twice"),
        ("--grid network.depth", "expected OPTION=VALUES"),
        ("--grid lr=1,2 --grid optimizer.learning-rate=3,4", "this option is named twice"),
        (
            "--grid network.depth=1,0",
            "a trial with network.depth=0 cannot run: Network(depth=0) must be at least 1",
        ),
        ("--search optimizer.learning-rate=1e-2:1e-4", "from a smaller to a larger number"),
        ("--grid rule=online --trials 3", "--grid excludes --search and --trials"),
        ("--search network.depth=1:2 --trials 0", "trials=0"),
        ("--grid rule=online --workers 0", "workers=0"),
    ],
)
def test_bad_input_is_one_clear_message(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    code, out, err = said("sweep", "copy", *TINY, *arguments.split())
    assert code == 2
    assert message in " ".join(err.split()) and "Traceback" not in err and out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_a_sweep_lacks_is_named_without_a_password(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(STORAGE, "postgresql+absent://me:secret@host/name")
    line = ["sweep", "copy", *TINY, "--grid", "rule=bptt", "--run-dir"]
    code, _, err = said(*line, "one")
    assert code == 2 and "secret" not in err
    assert "must be the address of a database that can be opened" in err
    monkeypatch.setitem(sys.modules, "optuna", None)
    code, _, err = said(*line, "two")
    assert code == 2 and "pip install 'foretrace[sweep]'" in err
    assert not (tmp_path / "two").exists()
