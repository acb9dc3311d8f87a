"""Settings of a run directory need not be repeated; different ones are refused with both values."""

import dataclasses

import jax
import numpy as np
import pytest

import foretrace as ft
from foretrace import experiment, sweep
from foretrace._runs.directory import create
from foretrace.cli import _main as cli
from foretrace.cli import _train
from foretrace.cli._options import RL, Reproduce, Stream, Sweep, Train
from foretrace.experiment._config import TASKS, task_name
from foretrace.paper._reproduce import Reproduction
from foretrace.rl._config import TASKS as RL_TASKS
from foretrace.rl._config import task_name as rl_task_name
from foretrace.stream._config import StreamConfig

pytestmark = pytest.mark.usefixtures("standard_promotion")

RUNS = {
    Train: dataclasses.replace(TASKS["psmnist"], seed=7, steps=60),
    Sweep: sweep.Sweep(RL_TASKS["memory-chain"], grid=("rule=online,spatial",)),
    RL: dataclasses.replace(RL_TASKS["t-maze"], seed=7),
    Stream: StreamConfig("a.csv", target="y", delay=3),
    Reproduce: Reproduction("table1", "cpu", seeds=(3,)),
}


def parsed(line):
    return cli._parse(line.split())


@pytest.mark.parametrize("command", RUNS)
def test_a_run_of_any_kind_is_resumed_by_its_directory_alone(tmp_path, command):
    run = create(tmp_path / "run", RUNS[command]).path
    assert parsed(f"resume {run}") == command(config=RUNS[command], run_dir=run, resume=True)


@pytest.mark.parametrize("command", RUNS)
def test_a_run_without_a_line_has_nothing_to_report(tmp_path, capsys, command):
    run = create(tmp_path / "run", RUNS[command])
    assert cli.main(["report", str(run.path)]) == 2
    err = capsys.readouterr().err
    assert "nothing to report yet" in err or "no records" in err
    assert not run.figure.exists()


def test_an_agent_without_a_line_of_learning_has_nothing_to_report(tmp_path, capsys):
    run = create(tmp_path / "run", RUNS[RL])
    run.metrics.write_text('{"kind": "result", "step": 1}\n')
    assert cli.main(["report", str(run.path)]) == 2
    assert "nothing to report yet" in capsys.readouterr().err


def test_options_of_a_page_are_for_records_of_experiments(tmp_path, capsys):
    run = create(tmp_path / "run", RUNS[Train]).path
    assert cli.main(["report", str(run), "--out", str(tmp_path / "page.md")]) == 2
    assert "--out is for folders of `foretrace reproduce`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "record", "whole"),
    [(Sweep, "study.log", False), (Reproduce, "records.jsonl", False), (Sweep, None, True)],
)
def test_missing_runs_are_found(tmp_path, capsys, command, record, whole):
    run = create(tmp_path / "run", RUNS[command]).path
    if record:
        (run / record).write_text("no record\n")
    assert cli.main(["check", str(run)]) == (0 if whole else 1)
    out = capsys.readouterr().out
    assert ": there is no run" in out
    assert ("records.jsonl, line 1 is not a line" in out) == (command is Reproduce)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--seed 3", "recorded and asked for are seed: 7, 3; leave these options out"),
        ("--steps 59 --optimizer.warmup-steps 0", "optimizer.warmup_steps: 1000, 0"),
        ("--cell gru", "network.cell: LRU("),
        ("--resume", "Unrecognized options: --resume"),
        ("copy", "copy"),
    ],
)
def test_a_given_option_that_differs_is_refused(tmp_path, capsys, options, message):
    create(tmp_path / "run", dataclasses.replace(RUNS[Train], steps=1500))
    before = (tmp_path / "run" / "config.json").read_bytes()
    assert cli.main(["resume", str(tmp_path / "run"), *options.split()]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert (tmp_path / "run" / "config.json").read_bytes() == before


def test_every_task_has_its_name():
    assert {name: task_name(config.task) for name, config in TASKS.items()} == {
        name: name for name in TASKS
    }
    names = {name: rl_task_name(config.environment) for name, config in RL_TASKS.items()}
    assert names == {name: name for name in RL_TASKS}


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """Return the run directory of a training on a file, beside the file, in the present folder."""
    folder = tmp_path_factory.mktemp("own")
    line = (
        "train --data my.npz --steps 2 --batch-size 4 --depth 1 --model-size 4 --align-every None "
        "--state-size 3 --run-dir run --final-sequences 4"
    )
    with pytest.MonkeyPatch.context() as patch, jax.numpy_dtype_promotion("standard"):
        patch.chdir(folder)
        xs, ys = np.random.default_rng(0).normal(size=(20, 5, 2)), np.arange(20) % 3
        np.savez("my.npz", xs=xs, ys=ys)
        assert cli.main(line.split()) == 0
        yield folder / "run"


@pytest.mark.full
def test_align_takes_the_checkpoint_of_a_run_on_a_file(own, capsys, monkeypatch):
    monkeypatch.setattr(_train, "RULES", {"ONLINE": ft.ONLINE})
    assert parsed("align run").data.digest
    assert cli.main("align run --data my.npz".split()) == 0
    assert "cell.nu_log" in capsys.readouterr().out
    np.savez("other.npz", xs=np.ones((20, 5, 2)), ys=np.arange(20) % 3)
    assert cli.main(["align", "run", "--data", "other.npz"]) == 2
    assert (
        "other.npz has changed since the run began, or is another file" in capsys.readouterr().err
    )
    assert cli.main(["resume", "run", "--data", "my.npz", "--steps", "3"]) == 0
    assert experiment.read_config(own).steps == 3


def test_missing_data_are_not_the_fault_of_the_checkpoint(own, capsys):
    (own.parent / "my.npz").rename(own.parent / "elsewhere.npz")
    try:
        assert cli.main(["export", "run", "--out", "graph"]) == 2
    finally:
        (own.parent / "elsewhere.npz").rename(own.parent / "my.npz")
    said = " ".join(capsys.readouterr().err.split())
    assert "cannot read" in said and "does not write" not in said
