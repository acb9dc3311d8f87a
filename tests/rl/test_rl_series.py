"""A file of numbers as a stream: predictions, known values, and the command's output."""

import gzip
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from foretrace import rl
from foretrace.cli import _main as cli
from foretrace.rl._config import TASKS, AgentConfig, RLConfig

ROWS = 60


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("series") / "load.csv.gz"
    rng = np.random.default_rng(0)
    load, heat = rng.normal(3.0, 2.0, ROWS), rng.normal(size=ROWS)
    lines = [f"2026-01-{i:02d},{load[i]},{heat[i]}" for i in range(ROWS)]
    path.write_bytes(gzip.compress("\n".join(["date,load,heat", *lines]).encode()))
    return str(path), load, heat


def test_the_environment_reads_the_file_row_by_row(file):
    path, load, heat = file
    series = rl.Series(path, "load", scaling_rows=20)
    assert (series.observation_size, series.row_count, series.action_count) == (2, ROWS, 1)
    scaled = (load - load[:20].mean()) / load[:20].std()
    state, observation = series.reset(jax.random.key(0))
    for t in range(1, ROWS):
        np.testing.assert_allclose(observation, [load[t - 1], heat[t - 1]], rtol=1e-6)
        state, step, observation = rl.step_or_reset(series, state, jnp.array(0), jax.random.key(t))
        np.testing.assert_allclose(step.reward, scaled[t], rtol=1e-5)
        assert bool(step.truncated) == (t == ROWS - 1) and not step.terminated
    np.testing.assert_allclose(step.observation, [load[-1], heat[-1]], rtol=1e-6)
    np.testing.assert_allclose(observation, [load[0], heat[0]], rtol=1e-6)


@pytest.mark.parametrize("discount", [0.0, 0.8])
def test_a_value_is_the_discounted_sum_of_what_follows(file, discount):
    path, load, _ = file
    series = rl.Series(path, "load", scaling_rows=ROWS)
    scaled = (load - load.mean()) / load.std()
    values, known = series.values(discount)
    for t in (0, 7, ROWS - 2):
        assert values[t] == pytest.approx(
            sum(discount**k * c for k, c in enumerate(scaled[t + 1 :]))
        )
        value, is_known = series.value(jnp.array(t), discount)
        assert float(value) == pytest.approx(values[t], rel=1e-5) and bool(is_known) == known[t]
    # 0.8^21 is the first power below a hundredth.
    assert known.sum() == ROWS - (21 if discount else 1)
    assert series.spread(discount) == pytest.approx(values[known].var())
    assert not series.values(1.0)[1].any()


def test_simple_predictions_are_scored_on_the_rows_that_are_asked(file):
    path, load, _ = file
    series = rl.Series(path, "load", scaling_rows=ROWS)
    scaled, values = (load - load.mean()) / load.std(), series.values(0.5)[0]
    found = series.references(0.5, 10, 30)
    whole, constant, last = found.values()
    assert constant == pytest.approx(values[10:30].var() / series.spread(0.5))
    assert last == pytest.approx(
        np.mean((2 * scaled[10:30] - values[10:30]) ** 2) / series.spread(0.5)
    )
    assert whole == 1
    assert series.references(0.5, ROWS - 3, ROWS) == {"the best constant for the whole file": 1.0}


def test_what_does_not_fit_is_named(file, tmp_path):
    path, *_ = file
    for series, message in (
        (rl.Series(), "--environment.path FILE"),
        (rl.Series(path, "cold"), "choose one of load, heat"),
        (rl.Series(path, "date"), "not a column of numbers"),
        (rl.Series(str(tmp_path / "none.csv"), "load"), "cannot be read: No such file"),
        (rl.Series(str(tmp_path), "load"), "the name must end with .csv"),
    ):
        with pytest.raises(ValueError, match=message):
            _ = series.observation_size
    for text, message in (
        ("load,heat\n1,2\n3,\n4,5\n", "line 3: heat='' is no finite number"),
        ("load,heat\n1,2\nnan,2\n4,5\n", "line 3: load='nan'"),
        ("load\n1\n2\n", "has 2 rows"),
        ("load\na\nb\nc\n", "no column of numbers"),
    ):
        bad = tmp_path / "bad.csv"
        bad.write_text(text)
        with pytest.raises(ValueError, match=message):
            _ = rl.Series(str(bad), "load").table
    with pytest.raises(ValueError, match="scaling_rows=1"):
        rl.Series(path, "load", scaling_rows=1)
    agent = AgentConfig("prediction")
    with pytest.raises(ValueError, match="nothing to choose; use prediction"):
        RLConfig(environment=rl.Series(path, "load"))
    with pytest.raises(ValueError, match="environments=2 does not fit Series"):
        RLConfig(environment=rl.Series(path, "load"), agent=agent, environments=2)
    with pytest.raises(ValueError, match=f"steps=60 is more than one pass .* at most {ROWS - 1}"):
        _ = RLConfig(environment=rl.Series(path, "load"), agent=agent, steps=60).seen
    with pytest.raises(ValueError, match="has changed since the run began"):
        _ = rl.Series(path, "load", digest="0" * 64).table
    pinned = rl.Series(path, "load").pinned()
    assert len(pinned.digest) == 64 and pinned.pinned() == pinned and pinned.row_count == ROWS
    assert TASKS["series"].agent.method == "prediction"


@pytest.mark.full
def test_the_command_predicts_a_column(file, tmp_path, capsys):
    path, *_ = file
    run = tmp_path / "run"
    options = [
        "--environment.path",
        path,
        *"--environment.column load --steps 59".split(),
    ]
    options += [
        *"--agent.discount 0.5 --log-every 10 --checkpoint-every 20 --run-dir".split(),
        str(run),
    ]
    small = [
        *"--network.depth 1 --network.model-size 4 network.cell:lru".split(),
        *"--network.cell.state-size 3".split(),
    ]
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        assert cli.main(["rl", "series", *options, *small]) == 0
        out = capsys.readouterr().out
        for words in ("Series", "the last value", "share of variance"):
            assert words in out
        assert cli.main(["rl", "series", "--steps", "5"]) == 2
    assert "--environment.path FILE" in capsys.readouterr().err
    assert (
        len(json.loads((run / "config.json").read_text())["config"]["environment"]["digest"]) == 64
    )
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert all(np.isfinite(line["error"]) for line in lines)
