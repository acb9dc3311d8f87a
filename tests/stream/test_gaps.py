"""The time since the row before of a member is an input where a column of times is irregular."""

import datetime

import numpy as np
import pytest

from foretrace._runs.config_json import from_json, to_json
from foretrace.stream import ModelConfig, StreamConfig, run
from foretrace.stream.read.encode import Encoder
from foretrace.stream.read.schema import Column
from foretrace.stream.read.slots import SlotTable
from foretrace.stream.read.streams import Streams
from foretrace.stream.read.target import NumberTarget
from foretrace.stream.runs.plan import Plan, make_plan, open_source

START = datetime.datetime(2026, 1, 1)
NAME = "time since the last when"
DRAWN = np.random.default_rng(0).uniform(1, 3, 400)


def write(path, gaps, members=1):
    """Write rows whose target is the time since the row before of the same member, in hours."""
    at, lines = [START + i * datetime.timedelta(minutes=6) for i in range(members)], ["when,who,y"]
    for i, hours in enumerate(gaps):
        at[i % members] += datetime.timedelta(hours=float(hours))
        lines.append(f"{at[i % members]},{i % members},{hours:.3f}")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.mark.parametrize(
    ("gaps", "members", "found"),
    [
        (np.ones(60), 1, {}),
        (DRAWN[:60], 1, {NAME: "when"}),
        (DRAWN[:15], 1, {}),  # too few to tell
        (np.repeat(DRAWN[:60], 2), 2, {NAME: "when"}),
        (np.ones(60), 3, {}),  # regular for each member
    ],
)
def test_only_irregular_times_have_the_input(tmp_path, gaps, members, found):
    path = write(tmp_path / "a.csv", gaps, members)
    config = StreamConfig(path, "y", task="regression", member="who" if members > 1 else None)
    source = open_source(config)
    plan = make_plan(config, source, [row for row, _ in source.rows()])
    assert plan.gaps == found and (Column(NAME, "numeric") in plan.columns) == bool(found)
    assert NAME not in plan.inputs and from_json(Plan, to_json(plan)) == plan


def streams():
    encoder = Encoder([Column("when", "time"), Column(NAME, "numeric")])
    return Streams(encoder, NumberTarget(), SlotTable(1), gaps={NAME: "when"})


def test_the_input_is_missing_where_no_time_is_known_and_is_saved():
    one, seen = streams(), []
    for when in ["2026-01-01", "2026-01-02", "", "2026-01-05", "2026-01-04", "2026-01-06"]:
        before, one = one.to_json(), streams()
        one.restore(before)
        asked, came = one.peek(None, {"when": when}), one.push(None, {"when": when}, 1.0)
        np.testing.assert_array_equal(asked.x, came.x)
        seen.append(came.x[one.encoder.columns[NAME][1]])
    # The first row has no row before it, one has no time, and one lies before its last.
    day, nan = 86400, np.nan
    np.testing.assert_allclose(np.exp(seen), [nan, day, nan, 3 * day, nan, 2 * day])


def test_a_target_that_is_the_gap_is_found(tmp_path):
    path = write(tmp_path / "a.csv", DRAWN, members=2)
    options = {"target": "y", "task": "regression", "member": "who"}
    options["model"] = ModelConfig(experts=("baselines", "row"))
    result = run(path, tmp_path / "run", **options)
    assert result.scores["mae"] < 0.15 < 0.4 < result.scores["mean_mae"]
