"""Sweeps of agents and of streams: the same trials, scores and tables as of training runs."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from foretrace import experiment, rl
from foretrace.cli import _main as cli
from foretrace.rl._config import RLConfig
from foretrace.stream import ModelConfig, StreamConfig
from foretrace.stream._run import follow
from foretrace.sweep import Sweep, run
from foretrace.sweep._space import applied

AGENT = RLConfig(
    environment=rl.MemoryChain(2),
    network=experiment.NetworkConfig(1, 4, experiment.LRU(3)),
    log_every=10,
    checkpoint_every=20,
    steps=40,
)
MODEL = ModelConfig("tiny", depth=1, model_size=4, state_size=2)


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


def ran(folder, sweep):
    """Run a new sweep; return its trials."""
    return run(sweep, folder, show_progress=False).trials


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
    with pytest.raises(ValueError, match="name it by --task, or a score by --score"):
        Sweep(StreamConfig(stream.source, target="y"), grid=("size=tiny,small",)).check()
    with pytest.raises(ValueError, match="predictions=p.csv: all trials would write to it"):
        Sweep(replace(stream, predictions="p.csv"), grid=("size=tiny,small",)).check()
    with pytest.raises(ValueError, match="source='-': .* name a file"):
        Sweep(StreamConfig("-", target="y", task="regression"), grid=("size=tiny,small",)).check()
    with pytest.raises(ValueError, match="a trial with network.depth=0 cannot run"):
        Sweep(AGENT, grid=("network.depth=1,0",)).check()


def test_options_have_the_names_of_the_command(stream):
    assert applied(AGENT, {"lr": "0.5"}).agent.learning_rate == 0.5
    changed = applied(stream, {"lr": "0.5", "chunk": "4"})
    assert (changed.model.learning_rate, changed.chunk, changed.source) == (0.5, 4, stream.source)
    changed = applied(
        AGENT, {"network.cell": "gru", "agent.method": "sarsa", "rule": "online(depth=1)"}
    )
    assert (changed.network.cell, changed.agent.method) == (experiment.GRU(), "sarsa")
    assert Sweep(stream, search=("lr=log:1e-4:1e-2",)).dimensions["lr"].log


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("sweep rl t-maze", RLConfig),
        ("sweep t-maze", RLConfig),
        ("sweep train smnist", experiment.Config),
    ],
)
def test_the_command_is_named_before_the_task_or_not(line, kind):
    found = cli._parse([*line.split(), "--grid", "seed=1,2", "--steps", "2000"])
    assert isinstance(found.config.config, kind) and found.config.config.steps == 2000


def test_a_command_line_of_a_stream(stream):
    line = ["sweep", "stream", stream.source, *"--target y --size tiny --grid lr=1e-3,1e-2".split()]
    found = cli._parse(line).config
    assert (found.config.source, found.config.target, found.config.model.size) == (
        stream.source,
        "y",
        "tiny",
    )
    assert cli.main(["sweep", "stream", "--help"]) == 0


@pytest.mark.parametrize(("kind", "task"), [("rl", "copy"), ("train", "t-maze")])
def test_a_task_of_another_command_is_refused(kind, task, capsys):
    assert cli.main(["sweep", kind, task, "--grid", "seed=1,2"]) == 2
    assert f"no task '{task}' of {kind}" in capsys.readouterr().err


@pytest.mark.full
def test_a_grid_of_agents_is_its_runs_and_a_table_of_seeds(tmp_path, capsys):
    folder = tmp_path / "sweep"
    found = ran(folder, Sweep(AGENT, grid=("rule=online,spatial", "seed=0,5")))
    assert [trial.state.name for trial in found] == ["COMPLETE"] * 4
    assert len({tuple(trial.params.items()) for trial in found}) == 4
    alone = rl.train(applied(AGENT, found[3].params), tmp_path / "alone", show_progress=False)
    assert found[3].value == alone.scores["return"]
    assert_same_arrays(folder / found[3].user_attrs["run"], tmp_path / "alone")
    assert cli.main(["report", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "mean return" in out and "spatial" in out
    assert cli.main(["check", str(folder)]) == 0
    assert capsys.readouterr().out.count("checkpoint.safetensors: whole") == 4


@pytest.mark.full
def test_an_agent_that_diverges_has_failed_and_the_others_go_on(tmp_path):
    found = ran(tmp_path / "sweep", Sweep(AGENT, grid=("lr=1e30,1e-3",)))
    states = {trial.params["lr"]: trial for trial in found}
    assert "learning has diverged" in states["1e30"].user_attrs["reason"]
    assert states["1e-3"].value is not None


@pytest.mark.full
def test_a_grid_of_streams_is_its_runs(tmp_path, stream):
    found = ran(tmp_path / "sweep", Sweep(stream, grid=("lr=1e-3,1e-2", "seed=0,1")))
    alone = follow(applied(stream, found[1].params), tmp_path / "alone", show_progress=False)
    assert found[1].value == alone.scores["mae"]
    assert_same_arrays(tmp_path / "sweep" / found[1].user_attrs["run"], tmp_path / "alone")


@pytest.mark.full
def test_a_score_that_a_stream_does_not_have_is_named(tmp_path, stream):
    found = ran(tmp_path / "sweep", Sweep(stream, score="accuracy", grid=("seed=0,1",)))
    assert [trial.state.name for trial in found] == ["FAIL"] * 2
    assert found[0].user_attrs["reason"].startswith("no finite accuracy in {'mae'")
