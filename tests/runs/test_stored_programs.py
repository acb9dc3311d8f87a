"""A later process of a command traces none of its programs, and computes the same."""

import dataclasses

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file
from trained import AGENT, TRAINED

from foretrace import experiment, rl
from foretrace._options import network
from foretrace._runs import programs
from foretrace.experiment import _program
from foretrace.rl import _run
from foretrace.tasks.copy import Copy


def trained(train, config, folder):
    """Return the arrays and scores of a run whose process has no program in memory."""
    for made in (_program.programs, _program._gradient, _run._compiled, network._drawing):
        made.cache_clear()
    found = train(config, folder, show_progress=False)
    arrays = load_file(found.run.checkpoint)
    del arrays["__extra__"]
    return {name: array.tobytes() for name, array in arrays.items()}, str(found.scores)


@pytest.mark.parametrize(
    ("train", "config", "count", "traced"),
    [
        (experiment.train, dataclasses.replace(TRAINED, steps=4), 5, (_program, "learn")),
        (rl.train, AGENT, 2, (_run, "advance")),
    ],
)
def test_a_later_process_traces_nothing(train, config, count, traced, tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "_folder", lambda: None)
    plain = trained(train, config, tmp_path / "plain")
    monkeypatch.setattr(programs, "_folder", lambda: tmp_path)
    assert trained(train, config, tmp_path / "first") == plain
    monkeypatch.setattr(*traced, None)
    assert trained(train, config, tmp_path / "later") == plain
    assert len([*tmp_path.glob("foretrace-*")]) == count


def test_a_drawn_network_is_committed_to_no_device(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "_folder", lambda: tmp_path)
    network._drawing.cache_clear()
    drawn = TRAINED.network.drawn(2, 3, jax.random.key(0))
    assert [*tmp_path.iterdir()] and not any(leaf.committed for leaf in jax.tree.leaves(drawn))


def test_a_program_that_calls_python_is_not_stored(tmp_path, monkeypatch):
    monkeypatch.setattr(programs, "_folder", lambda: tmp_path)
    called = programs.program(
        "called", lambda x: jax.pure_callback(np.sign, x, x), "a", form=lambda x: x
    )
    assert called(np.ones(2, np.float32)).tolist() == [1, 1] and not [*tmp_path.iterdir()]


def test_a_class_of_another_package_is_not_described():
    class Own(Copy):
        pass

    assert programs.described(TRAINED) == repr(TRAINED)
    assert programs.described(dataclasses.replace(TRAINED, task=Own())) is None
