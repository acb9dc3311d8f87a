"""More steps for a run: it ends as if begun with them, if its rate is independent of them."""

import dataclasses
import json
import shutil

import pytest
from test_experiment import CONFIG, interrupt_at, parameters, without_time

from foretrace import experiment
from foretrace._runs.directory import read_config_as
from foretrace._runs.metrics import read_metrics
from foretrace.cli import _main as cli

pytestmark = pytest.mark.usefixtures("default_promotion")

LONG = dataclasses.replace(
    CONFIG,
    optimizer=experiment.OptimizerConfig(schedule="constant", warmup_steps=5),
    steps=90,
    log_every=10,
    evaluate_every=30,
    align_every=30,
    checkpoint_every=25,
)
SHORT = dataclasses.replace(LONG, steps=60)


def train(config, folder, **options):
    return experiment.train(config, folder, show_progress=False, **options)


@pytest.fixture(scope="module")
def short(tmp_path_factory, default_promotion):
    return train(SHORT, tmp_path_factory.mktemp("runs") / "short")


def copied(short, folder):
    return shutil.copytree(short.run.path, folder / "run")


def test_sixty_steps_and_thirty_more_are_ninety(short, tmp_path, capsys):
    whole = train(LONG, tmp_path / "whole")
    run = copied(short, tmp_path)
    extended = experiment.train(LONG, run, resume=True)
    assert "60 to 90 steps" in capsys.readouterr().err
    assert extended.step == 90 and extended.scores == whole.scores
    pairs = zip(parameters(extended.run, LONG), parameters(whole.run, LONG), strict=True)
    assert all((x == y).all() and x.dtype == y.dtype for x, y in pairs)
    lines = without_time(read_metrics(extended.run.metrics))
    assert [
        line for line in lines if (line["kind"], line["step"]) != ("result", 60)
    ] == without_time(read_metrics(whole.run.metrics))
    assert read_config_as(run, experiment.Config) == LONG
    assert cli.main(["check", str(run)]) == 0


@pytest.mark.full
def test_an_extended_run_that_was_stopped_needs_its_steps_only_once(short, tmp_path, monkeypatch):
    run = copied(short, tmp_path)
    with monkeypatch.context() as patch:
        interrupt_at(patch, 75)
        assert train(LONG, run, resume=True).scores is None
    assert json.loads((run / "config.json").read_text())["config"]["steps"] == 90
    assert cli.main(["resume", str(run)]) == 0
    results = [
        line["step"] for line in read_metrics(run / "metrics.jsonl") if line["kind"] == "result"
    ]
    assert results == [60, 90]


@pytest.mark.full
def test_a_rate_that_falls_says_what_the_extension_does_to_it(tmp_path, capsys):
    config = dataclasses.replace(
        SHORT, optimizer=experiment.OptimizerConfig(), steps=4, evaluate_every=4
    )
    train(config, tmp_path / "run")
    capsys.readouterr()
    experiment.train(dataclasses.replace(config, steps=8), tmp_path / "run", resume=True)
    err = " ".join(capsys.readouterr().err.split())
    assert (
        "4 to 8 steps" in err
        and "its learning rate falls to zero at the last step" in err
        and "schedule constant" in err
    )
