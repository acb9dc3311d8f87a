"""Sweeps of agents and of streams: the same trials, scores and tables as of training runs."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from safetensors.numpy import load_file
from trained import AGENT, STREAM

from foretrace import experiment, rl
from foretrace.cli import _main as cli
from foretrace.rl._config import RLConfig
from foretrace.stream import StreamConfig
from foretrace.stream.runs.run import follow
from foretrace.sweep import Sweep, run
from foretrace.sweep._space import applied

SIZES = partial(Sweep, grid=("model-size=4,8",))


@pytest.fixture(autouse=True)
def rows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{i % 3},{i % 2 + 0.5}\n" for i in range(60)]
    (tmp_path / "a.csv").write_text("".join(["x,y\n", *rows]))


@pytest.mark.parametrize(
    ("config", "named", "measure", "sign"),
    [
        (AGENT, None, "return", -1),
        (AGENT, "reward", "reward", -1),
        (STREAM, None, "mae", 1),
        (STREAM, "accuracy", "accuracy", -1),
    ],
)
def test_the_score_follows_from_the_kind_of_run(config, named, measure, sign):
    asked = Sweep(config, score=named)
    assert (asked.measure, asked.sign) == (measure, sign)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (partial(Sweep, AGENT, score="loss"), "score='loss' must be one of return, reward, error"),
        (SIZES(replace(STREAM, task="auto")).check, "name it by --task, or a score by --score"),
        (SIZES(replace(STREAM, predictions="p.csv")).check, "all trials would write to it"),
        (SIZES(replace(STREAM, source="-")).check, "source='-': .* name a file"),
    ],
)
def test_what_cannot_be_compared_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_options_have_the_names_of_the_command():
    assert applied(AGENT, {"lr": "0.5"}).agent.learning_rate == 0.5
    changed = applied(STREAM, {"lr": "0.5", "delay": "4"})
    assert (changed.model.learning_rate, changed.delay, changed.source) == (0.5, 4, "a.csv")
    given = {"network.cell": "gru", "agent.method": "sarsa", "rule": "online(depth=1)"}
    changed = applied(AGENT, given)
    assert (changed.network.cell, changed.agent.method) == (experiment.GRU(), "sarsa")
    assert Sweep(STREAM, search=("lr=log:1e-4:1e-2",)).dimensions["lr"].log


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("sweep rl t-maze --steps 2000", RLConfig),
        ("sweep t-maze --steps 2000", RLConfig),
        ("sweep train smnist --steps 2000", experiment.Config),
        ("sweep stream a.csv --target y --size small", StreamConfig),
    ],
)
def test_the_command_is_named_before_the_task_or_not(line, kind):
    found = cli._parse([*line.split(), "--grid", "log-every=1,2"]).config.config
    assert isinstance(found, kind) and getattr(found, "steps", 2000) == 2000
    if kind is StreamConfig:
        assert (found.source, found.target, found.model.size) == ("a.csv", "y", "small")


@pytest.mark.full
@pytest.mark.parametrize(
    ("config", "train", "grid", "trials"),
    [
        (AGENT, rl.train, ("rule=online,spatial", "seed=0,5"), 4),
        (STREAM, follow, ("lr=1e-3,1e-2",), 2),
    ],
)
def test_a_grid_is_its_runs_and_a_table_of_seeds(tmp_path, capsys, config, train, grid, trials):
    asked = Sweep(config, grid=grid)
    found = run(asked, "sweep", show_progress=False).trials
    assert [trial.state.name for trial in found] == ["COMPLETE"] * trials
    assert len({tuple(trial.params.items()) for trial in found}) == trials
    alone = train(applied(config, found[-1].params), tmp_path / "alone", show_progress=False)
    assert found[-1].value == alone.scores[asked.measure]
    folders = tmp_path / "sweep" / found[-1].user_attrs["run"], tmp_path / "alone"
    ours, theirs = (load_file(folder / "checkpoint.safetensors") for folder in folders)
    for name in theirs.keys() - {"__extra__"}:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    capsys.readouterr()
    assert cli.main(["report", "sweep"]) == 0
    assert f"mean {asked.measure}" in capsys.readouterr().out
    assert cli.main(["check", "sweep"]) == 0
    assert capsys.readouterr().out.count("checkpoint.safetensors: whole") == trials
