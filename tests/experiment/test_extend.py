"""More steps for a run: it ends as if begun with them, if its rate is independent of them."""

import dataclasses
import shutil
from functools import partial

import pytest
from test_experiment import CHANGED, assert_same_run, train

from foretrace import experiment
from foretrace._runs.saved import find_result
from foretrace.cli import _main as cli
from foretrace.experiment import _train

CONSTANT = experiment.OptimizerConfig(schedule="constant", warmup_steps=5)
EVERY = {"log_every": 10, "evaluate_every": 30, "align_every": 30, "checkpoint_every": 25}
LONG = CHANGED(optimizer=CONSTANT, steps=90, **EVERY)
SHORT = dataclasses.replace(LONG, steps=60)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a run of 60 steps and one of 90."""
    folder = tmp_path_factory.mktemp("runs")
    return train(folder / "short", SHORT), train(folder / "whole", LONG)


@pytest.mark.full
def test_sixty_steps_and_thirty_more_are_ninety(runs, tmp_path, capsys):
    short, whole = runs
    run = shutil.copytree(short.run.path, tmp_path / "run")
    extended = experiment.train(LONG, run, resume=True)
    assert "60 to 90 steps; it ends as if" in capsys.readouterr().err
    assert find_result(extended.run, SHORT.steps) is not None
    lines = extended.run.metrics.read_text().splitlines(keepends=True)
    kept = [line for line in lines if '"result", "step": 60' not in line]
    assert len(kept) == len(lines) - 1
    extended.run.metrics.write_text("".join(kept))
    assert_same_run(extended, whole, LONG)
    extended.run.metrics.write_text("".join(lines))
    assert experiment.read_config(run) == LONG and cli.main(["check", str(run)]) == 0


def test_a_rate_that_falls_says_what_the_extension_does_to_it():
    falling = partial(dataclasses.replace, optimizer=experiment.OptimizerConfig())
    said = _train._extension(falling(SHORT), falling(LONG))
    assert "its learning rate falls to zero at the last step" in said
    assert "60 to 90 steps" in said and "schedule constant" in said
