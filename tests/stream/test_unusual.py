"""The surprise of a label: calibrated, of its own member, the same for late labels, and told."""

import json

import jax
import numpy as np
import pytest
from streams import LAGS

from foretrace.cli import _main as cli
from foretrace.stream.experts.settings import TUNED
from foretrace.stream.model.unusual import new_past_errors
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.monitors import QUIET
from foretrace.stream.runs.run import follow

DRAW = np.random.default_rng(0)
NOISE = {
    "normal": np.abs(DRAW.normal(size=9000)),
    "exponential": 1e9 * DRAW.exponential(size=9000),
    "Student": 1e-9 * np.abs(DRAW.standard_t(3, size=9000)),
    "ties": np.abs(np.round(3 * DRAW.normal(size=9000))),
}


def surprises(errors):
    """Return the surprise of each of some errors."""
    with jax.enable_x64(True):
        step = jax.jit(lambda past, error: past.learn(error)[::-1])
        return np.asarray(jax.lax.scan(step, new_past_errors(), np.asarray(errors, float))[1])


@pytest.mark.parametrize("name", NOISE)
def test_one_label_in_a_hundred_has_a_surprise_of_two(name):
    found = surprises(NOISE[name])
    known = np.isfinite(found)
    assert not known[: int(TUNED.past_errors)].any() and known[int(TUNED.past_errors) + 5 :].all()
    assert 0.007 < (found[1000:] > 2).mean() < 0.016
    assert (found[1000:] > 3).mean() < 0.005


def test_equal_errors_are_not_unusual_and_missing_ones_change_nothing():
    assert surprises(np.zeros(300))[-1] == 0 and surprises(np.full(300, 7.0))[-1] < 0.001
    errors = NOISE["normal"][:500]
    gaps = np.insert(errors, 200, [np.nan, np.inf])
    np.testing.assert_array_equal(np.delete(surprises(gaps), [200, 201]), surprises(errors))
    assert surprises([*errors, 2 * errors.max()])[-1] > surprises([*errors, errors.max()])[-1] > 2


def test_members_have_their_own_errors():
    pytest.importorskip("river")
    from foretrace.stream import Regressor

    model = Regressor(model=LAGS, member="who", members=2, features=2)
    found = {"a": [], "b": []}
    for i in range(300):
        for who, scale in (("a", 1.0), ("b", 100.0)):
            y = scale * DRAW.normal() if i < 299 else 30.0
            model.learn_one({"who": who, "x": 0.0}, y)
            found[who].append(model.surprise)
    assert found["a"][-1] > 3 and found["b"][-1] < 1
    model.learn_one({"who": "c", "x": 0.0}, 1.0)  # in the slot of a member that left
    assert np.isnan(model.surprise)


@pytest.fixture(scope="module")
def events(tmp_path_factory):
    """Return a file of rows, of which 201, 231 and 451 are far off."""
    folder = tmp_path_factory.mktemp("unusual")
    values = np.sin(np.arange(500) / 3) + 0.1 * DRAW.normal(size=500)
    values[[200, 230, 450]] += (5, 9, 20)
    path = folder / "a.csv"
    path.write_text("x,y\n" + "".join(f"{i % 7},{value}\n" for i, value in enumerate(values)))
    return path


@pytest.mark.parametrize("size", ["small", "fast"])
def test_an_unusual_label_is_told_counted_and_followed_by_quiet(events, tmp_path, capsys, size):
    model = LAGS if size == "small" else LAGS.__class__("fast", experts=("baselines", "lags"))
    found = []
    config = StreamConfig(str(events), target="y", model=model, unusual=3.0)
    follow(config, tmp_path / "run", rows=224)  # whole chunks
    follow(config, tmp_path / "run", resume=True, on_prediction=found.append)
    said = [line for line in capsys.readouterr().err.splitlines() if "unusual label" in line]
    assert [line.split(":")[0] for line in said] == ["row 201", "row 451"]
    assert found[6]["row"] == 231 < 201 + QUIET and found[6]["surprise"] > 3
    last = json.loads((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["unusual"] == 2
    assert cli.main(["report", str(tmp_path / "run")]) == 0
    assert "Unusual labels: 2." in " ".join(capsys.readouterr().out.split())


def test_a_threshold_is_above_zero():
    with pytest.raises(ValueError, match="unusual=0.0, expected a surprise above 0"):
        StreamConfig("a.csv", unusual=0.0)
