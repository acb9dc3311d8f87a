"""Sweeps of agents and of streams: the same trials, scores and tables as of training runs."""

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from foretrace import experiment, rl
from foretrace._runs.directory import create
from foretrace.cli import _main as cli
from foretrace.rl._config import RLConfig
from foretrace.stream import ModelConfig, StreamConfig
from foretrace.stream._run import follow
from foretrace.sweep._config import Sweep
from foretrace.sweep._space import applied, short_names
from foretrace.sweep._study import connect, default_storage, plan, standing
from foretrace.sweep._worker import Worker

AGENT = RLConfig(
    environment=rl.MemoryChain(2),
    network=experiment.NetworkConfig(1, 4, experiment.LRU(3)),
    log_every=10,
    checkpoint_every=20,
    steps=40,
)
MODEL = ModelConfig("tiny", depth=1, model_size=4, state_size=2)

# Of trials that these tests take by hand.
pytestmark = pytest.mark.filterwarnings("ignore:Heartbeat of storage")


@pytest.fixture(scope="module", autouse=True)
def as_a_user():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture
def stream(tmp_path):
    (tmp_path / "a.csv").write_text(
        "x,y\n" + "".join(f"{i % 3},{i % 2 + 0.5}\n" for i in range(60))
    )
    options = {
        "target": "y",
        "task": "regression",
        "model": MODEL,
        "look_ahead": 10,
        "log_every": 20,
    }
    return StreamConfig(str(tmp_path / "a.csv"), **options)


def worked(folder, sweep):
    """Run the trials of a new sweep in this process; return how they stand."""
    create(folder, sweep)
    study = connect(folder, default_storage(folder), sweep)
    plan(study, folder, sweep)
    assert Worker(folder, default_storage(folder), "one", 10).work()
    return standing(study)


def assert_same_arrays(ours, theirs):
    ours, theirs = (load_file(path / "checkpoint.safetensors") for path in (ours, theirs))
    for name in theirs.keys() - {"__extra__"}:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


def test_the_score_follows_from_the_kind_of_run(stream):
    assert (Sweep(AGENT).measure, Sweep(AGENT).sign, Sweep(AGENT, score="reward").sign) == (
        "return",
        -1,
        -1,
    )
    assert (Sweep(stream).measure, Sweep(stream).sign, Sweep(stream, score="accuracy").sign) == (
        "mae",
        1,
        -1,
    )
    with pytest.raises(ValueError, match="score='loss' must be one of return, reward, error"):
        Sweep(AGENT, score="loss")
    with pytest.raises(ValueError, match="name its kind by --task, or a score by --score"):
        Sweep(StreamConfig(stream.source, target="y"), grid=("size=tiny,small",)).check()
    with pytest.raises(ValueError, match="predictions=p.csv: all trials would write to it"):
        Sweep(replace(stream, predictions="p.csv"), grid=("size=tiny,small",)).check()
    with pytest.raises(ValueError, match="name a file, not standard input"):
        Sweep(StreamConfig("-", target="y", task="regression"), grid=("size=tiny,small",)).check()
    with pytest.raises(ValueError, match="a trial with network.depth=0 cannot run"):
        Sweep(AGENT, grid=("network.depth=1,0",)).check()


def test_options_have_the_names_of_the_command(stream):
    assert (
        short_names(stream)["lr"] == "learning-rate"
        and short_names(AGENT)["lr"] == "agent.learning-rate"
    )
    changed = applied(stream, {"learning-rate": "0.5", "chunk": "4"})
    assert (changed.model.learning_rate, changed.chunk, changed.source) == (0.5, 4, stream.source)
    changed = applied(
        AGENT, {"network.cell": "gru", "agent.method": "sarsa", "rule": "online(depth=1)"}
    )
    assert (changed.network.cell, changed.agent.method) == (experiment.GRU(), "sarsa")
    assert Sweep(stream, search=("lr=log:1e-4:1e-2",)).dimensions[0].option == "learning-rate"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("sweep rl t-maze", RLConfig),
        ("sweep t-maze", RLConfig),
        ("sweep train smnist", experiment.Config),
    ],
)
def test_the_command_is_named_before_the_task_or_not(line, kind):
    found = cli._parse(cli._spelled_out([*line.split(), "--grid", "seed=1,2", "--steps", "2000"]))
    assert isinstance(found.config.config, kind) and found.config.config.steps == 2000


def test_a_command_line_of_a_stream(stream):
    line = ["sweep", "stream", stream.source, *"--target y --size tiny --grid lr=1e-3,1e-2".split()]
    found = cli._parse(cli._spelled_out(line)).config
    assert (found.config.source, found.config.target, found.config.model.size) == (
        stream.source,
        "y",
        "tiny",
    )
    assert cli.main(["sweep", "stream", "--help"]) == 0


@pytest.mark.parametrize(
    "line", ["sweep rl copy --grid seed=1,2", "sweep train t-maze --grid seed=1,2"]
)
def test_a_task_of_another_command_is_refused(line, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(line.split())
    assert end.value.code == 2 and "invalid choice" in " ".join(capsys.readouterr().err.split())


@pytest.mark.full
def test_a_grid_of_agents_is_its_runs_and_a_table_of_seeds(tmp_path, capsys):
    found = worked(tmp_path / "sweep", Sweep(AGENT, grid=("rule=online,spatial", "seed=0,5")))
    assert [trial.state for trial in found] == ["finished"] * 4 and found[3].values == {
        "rule": "spatial",
        "seed": "5",
    }
    alone = rl.train(applied(AGENT, found[3].values), tmp_path / "alone", show_progress=False)
    assert found[3].score == alone.scores["return"]
    assert_same_arrays(tmp_path / "sweep" / "trials" / "3", tmp_path / "alone")
    (tmp_path / "sweep" / "sweep.jsonl").write_text(
        "".join(json.dumps(t._asdict()) + "\n" for t in found)
    )
    assert cli.main(["report", str(tmp_path / "sweep")]) == 0
    out = capsys.readouterr().out
    assert "seed 5" in out and "mean" in out and "rule=spatial" in out
    assert (tmp_path / "sweep" / "sweep.png").read_bytes().startswith(b"\x89PNG")
    assert cli.main(["check", str(tmp_path / "sweep")]) == 0
    assert capsys.readouterr().out.count("checkpoint.safetensors: whole") == 4


@pytest.mark.full
def test_an_agent_that_diverges_has_failed_and_the_others_go_on(tmp_path):
    failed, finished = worked(tmp_path / "sweep", Sweep(AGENT, grid=("lr=1e30,1e-3",)))
    assert (
        failed.state == "failed"
        and "learning has diverged" in failed.reason
        and finished.state == "finished"
    )


@pytest.mark.full
def test_a_grid_of_streams_is_its_runs(tmp_path, stream):
    found = worked(tmp_path / "sweep", Sweep(stream, grid=("lr=1e-3,1e-2", "seed=0,1")))
    assert [trial.state for trial in found] == ["finished"] * 4
    alone = follow(applied(stream, found[1].values), tmp_path / "alone", show_progress=False)
    assert (found[1].score, found[1].step) == (alone.scores["mae"], 60)
    assert_same_arrays(tmp_path / "sweep" / "trials" / "1", tmp_path / "alone")


@pytest.mark.full
def test_a_score_that_a_stream_does_not_have_is_named(tmp_path, stream):
    found = worked(tmp_path / "sweep", Sweep(stream, score="accuracy", grid=("seed=0,1",)))
    assert [trial.state for trial in found] == ["failed"] * 2
    assert found[0].reason.startswith("the run has no score accuracy; it has mae, rmse")


def wait_until(arrived):
    for _ in range(4800):
        if arrived():
            return
        time.sleep(0.025)
    raise AssertionError("the worker did not get on")


def is_gone(process):
    try:
        # Ended, and nobody collects it.
        return "State:\tZ" in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return True


@pytest.mark.program
def test_a_worker_whose_sweep_is_gone_saves_and_stops(tmp_path):
    sweep = Sweep(RLConfig(**{**vars(AGENT), "steps": 10**9}), grid=("seed=0,1",))
    folder = tmp_path / "sweep"
    create(folder, sweep)
    plan(connect(folder, default_storage(folder), sweep), folder, sweep)
    begin = (
        "import subprocess, sys; print(subprocess.Popen(sys.argv[1:], start_new_session=True).pid, "
        "flush=True)"
    )
    command = [sys.executable, "-m", "foretrace.sweep._worker", str(folder), "one", "10"]
    environment = os.environ | {"FORETRACE_SWEEP_STORAGE": default_storage(folder)}
    parent = [sys.executable, "-c", f"{begin}; sys.stdin.read()", *command]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(parent, **pipes, env=environment, text=True) as started:
        worker = int(started.stdout.readline())
        metrics = folder / "trials" / "0" / "metrics.jsonl"
        wait_until(lambda: metrics.exists() and metrics.stat().st_size)
        started.kill()
    wait_until(lambda: is_gone(worker))
    assert (folder / "trials" / "0" / "checkpoint.safetensors").exists()
