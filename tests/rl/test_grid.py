"""Rules and seeds of an agent: a run for each, one table, and what a stop or a divergence leaves."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

from foretrace._runs.directory import Run, RunError
from foretrace.cli import _main as cli
from foretrace.experiment._cells import LRU
from foretrace.experiment._config import NetworkConfig
from foretrace.rl import MemoryChain, _grid, _run
from foretrace.rl._config import RLConfig
from foretrace.rl._grid import RLGrid, train_grid

CONFIG = RLConfig(
    environment=MemoryChain(2), network=NetworkConfig(1, 4, LRU(3)), log_every=10, checkpoint_every=20, steps=40
)
TINY = ["--steps=40", "--log-every=10", "--checkpoint-every=20", "--network.depth=1", "--network.model-size=4"]
TINY += ["--environment.length=2"]
CELL = ["network.cell:lru", "--network.cell.state-size=3"]


@pytest.fixture(scope="module", autouse=True)
def as_a_user():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def test_a_grid_that_does_not_fit_is_refused():
    assert RLGrid(CONFIG, (), (3, 4)).rules == ("online",)
    with pytest.raises(ValueError, match="seeds=1 1 names one twice"):
        RLGrid(CONFIG, ("online",), (1, 1))
    with pytest.raises(ValueError, match="rule=.offline. is unknown"):
        RLGrid(CONFIG, ("offline",))
    with pytest.raises(ValueError, match="seed=-1"):
        RLGrid(CONFIG, (), (-1,))


@pytest.mark.full
def test_a_grid_is_its_runs_and_goes_on(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "grid"
    words = ["rl", "memory-chain", *TINY, "--rules", "online", "spatial", "--seeds", "0", "5"]
    runs, allowed = _grid.train, [3]

    def three(config, path, **options):
        allowed[0] -= 1
        if allowed[0] < 0:
            return _run.RLResult(Run(path), 0, None, 0.0)
        return runs(config, path, **options)

    monkeypatch.setattr(_grid, "train", three)
    assert cli.main([*words, "--run-dir", str(folder), *CELL]) == 130
    assert "stopped after 3 of 4 runs" in capsys.readouterr().out
    allowed[0] = 100
    assert cli.main(["rl", "memory-chain", "--run-dir", str(folder), "--resume"]) == 0
    out = capsys.readouterr().out
    assert "online" in out and "spatial" in out and "seed 5" in out
    assert (folder / "curves.png").read_bytes().startswith(b"\x89PNG")
    config = dataclasses.replace(CONFIG, rule="spatial", seed=5)
    alone = _run.train(config, tmp_path / "alone", show_progress=False)
    ours, theirs = load_file(folder / "spatial-seed5" / "checkpoint.safetensors"), load_file(alone.run.checkpoint)
    for name in theirs.keys() - {"__extra__"}:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    assert cli.main(["report", str(folder)]) == 0
    assert cli.main(["check", str(folder)]) == 0
    assert capsys.readouterr().out.count("checkpoint.safetensors: whole") == 4
    with pytest.raises(RunError, match="seeds"):
        train_grid(RLGrid(CONFIG, ("online", "spatial"), (0, 6)), folder, resume=True, show_progress=False)


@pytest.mark.full
def test_divergence_ends_with_the_last_good_state_and_exit_code_1(tmp_path, capsys):
    wild = ["--agent.learning-rate=1e30"]
    assert cli.main(["rl", "memory-chain", *TINY, *wild, "--run-dir", str(tmp_path / "one"), *CELL]) == 1
    assert "learning has diverged" in capsys.readouterr().err
    kept = load_file(tmp_path / "one" / "checkpoint.safetensors")
    assert all(np.isfinite(array).all() for name, array in kept.items() if array.dtype.kind == "f")
    lines = [json.loads(line) for line in (tmp_path / "one" / "metrics.jsonl").read_text().splitlines()]
    assert lines[-1]["refused"] == 10 and np.isfinite(lines[-1]["spectral_radius"])
    again = ["rl", "memory-chain", "--run-dir", str(tmp_path / "one"), "--resume"]
    assert cli.main(again) == 1
    # In a grid, the other runs go on.
    grid = ["--seeds", "0", "1", "--run-dir", str(tmp_path / "grid")]
    assert cli.main(["rl", "memory-chain", *TINY, *wild, *grid, *CELL]) == 1
    assert capsys.readouterr().out.count("diverged: ") == 2
