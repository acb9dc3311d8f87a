"""Laws of every run on a stream, for the streams whose predictions are frozen and some more."""

import csv
import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import pandas as pd
import pytest
import test_frozen as frozen
from streams import (
    OFTEN,
    STREAMS,
    TINY,
    assert_same_run,
    kill_behind,
    kill_while_writing,
    quiet,
    records,
    rows_in,
)
from tiers import fast, slow

from foretrace import stream
from foretrace.stream.read.source import SYMBOL
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.plan import open_source
from foretrace.stream.runs.predict import predictions
from foretrace.stream.runs.saved import opened

KEY = jax.dtypes.prng_key
IN_FAST = ("alarms", "everything")
SHOWN = ("number", "class", "late labels", "memory", "fast", "numbers as they are")
SHOWN += ("network, late", "network, late classes")
SHOWN += ("late classes", "horizon", "members", "resets", "mask")
"""Streams whose parts others have: `default` has all experts, `everything` a late network,
`known in advance` a horizon, `alarms` late classes, `all layers` a mask, `members in chunks`
resets.
"""
ORDER = [*IN_FAST, *(name for name in STREAMS if name not in IN_FAST + SHOWN)]
every_stream = pytest.mark.parametrize("whole", fast(ORDER, len(IN_FAST)), indirect=True)
ROW = 84
"""Row, counted from 0, that is changed."""


def changed(whole, name):
    """Return the rows with another value of a column in one."""
    if not whole.header:
        return [*whole.rows[:ROW], "Q", *whole.rows[ROW + 1 :]]
    row = whole.table[ROW]
    row[name] = {"up": "down", "down": "up"}.get(row[name]) or str(float(row[name]) + 0.5)
    return [*whole.rows[:ROW], ",".join(row.values()) + "\n", *whole.rows[ROW + 1 :]]


def first_difference(whole, folder, rows):
    """Return the first row whose prediction is another one where a file has these rows."""
    found = []
    quiet(whole.moved(folder, rows), folder / "run", rows=ROW + 30, on_prediction=found.append)
    pairs = enumerate(zip(found, whole.found, strict=False))
    return next((at for at, (one, two) in pairs if one != two), len(found))


def assert_written(path, expected):
    """Assert that a file of predictions has these rows, each once and in order."""
    if path.suffix == ".jsonl":
        found = [json.loads(line) for line in path.read_text().splitlines()]
        assert found == json.loads(json.dumps(expected))
    else:
        rows = [{k: v for k, v in row.items() if k != "probabilities"} for row in expected]
        with open(path, newline="") as file:
            assert list(csv.DictReader(file)) == [
                {k: "" if v is None else str(v) for k, v in row.items()} for row in rows
            ]


@every_stream
def test_a_run_that_is_stopped_killed_and_fed_by_a_growing_file_is_the_whole_one(whole, tmp_path):
    run, (begin, end) = tmp_path / "run", (whole.rows[:202], whole.rows[202:])
    config = whole.moved(tmp_path, [*begin[:-1], begin[-1][:-2]])  # the last line is torn
    quiet(config, run, rows=33)
    quiet(config, run, resume=True)
    assert rows_in(run) <= 202
    config = whole.moved(tmp_path, begin + end)
    kill_behind(config, run, 210, resume=True)
    kill_while_writing(config, run, 10, resume=True)
    quiet(config, run, resume=True, rows=233)
    result = quiet(config, run, resume=True)
    assert_same_run(whole.run, run)
    assert result.position.row == len(whole.rows) and not result.stopped
    assert_written(Path(config.predictions), whole.found)
    assert bool(result.forecast) == (whole.config.horizon > 0)
    newest = {line.get("who"): line for line in whole.found}
    for line in result.forecast:
        last = newest[line.get("who")]
        # Another program makes the forecast of the end, with sums in another order.
        assert line["y"] == pytest.approx(last[f"y+{line['ahead']}"], rel=1e-12)
        assert line["row"] == last["row"]
        is_dated = "t" not in whole.config.ignore
        assert ("t" in line) == is_dated
        assert not is_dated or line["t"] == whole.table[line["row"] - 1]["t"]
    if (bound := whole.config.at_least) is not None:
        names = [name for name in whole.found[0] if name[:1] == "y"]
        found = np.array([[line[name] for name in names] for line in whole.found], float)
        found = found[~np.isnan(found).any(axis=1)]  # no number was known
        assert found.min() == bound and (found[:, :2] > bound).any()
    steps = [line["step"] for line in records(run) if line["kind"] == "stream"]
    assert steps[:3] == [50, 100, 150]
    last = records(run)[-1]
    assert last["refused"] == 0 and sum(last["weights"].values()) == pytest.approx(1)
    if whole.config.member:
        counts = last["members"]
        assert counts["joins"] - counts["evictions"] == counts["present"] == whole.config.members
        assert (counts["resets"] > 0) == (whole.config.reset is not None)


def taught(intake, state):
    """Return what rows have taught the units, the experts and the mixture."""
    with jax.enable_x64(True):
        state = intake.mixture.packing.unpack(state)
    found = jax.tree.leaves((state.arrived[:2], state.experts, state.weights))
    return [np.array(leaf) for leaf in found if not jax.dtypes.issubdtype(leaf.dtype, KEY)]


@every_stream
def test_predicting_learns_nothing_and_says_what_the_run_says(whole, tmp_path):
    at = 128 - 128 % whole.config.chunk
    rows, more = whole.rows[:at], whole.rows[at : at + 40]
    run = quiet(whole.moved(tmp_path, rows), tmp_path / "run").run.path
    before = (run / "checkpoint.safetensors").read_bytes()
    source = whole.moved(tmp_path, more).source
    names, found = predictions(run, source)
    found = list(found)
    shares = {one["column"]: one["share"] for one in predictions(run, source, importance=True)[1]}
    assert sum(shares.values()) == pytest.approx(1) and min(shares.values()) >= 0
    assert shares.keys() == {*opened(run).plan.inputs, whole.config.target or SYMBOL}
    assert whole.config.previous or shares[whole.config.target] == 0
    assert list(predictions(run, source)[1]) == found and len(found) == len(more)
    assert (run / "checkpoint.safetensors").read_bytes() == before
    first, expected = found[0], whole.found[at]
    assert [*first][: len(names)] == names and first.keys() == expected.keys() - {"surprise"}
    tolerance = 1e-3 if whole.config.model.has_network else 1e-6
    _, _, intake, state = opened(run)
    before = taught(intake, state)
    for row, _ in open_source(whole.moved(tmp_path, more)).rows():
        state, _ = intake.advance(state, row, row.get(whole.config.target or SYMBOL))
    for a, b in zip(taught(intake, state), before, strict=True):
        np.testing.assert_array_equal(a, b)
    # With a horizon, the row's own number is a label of earlier rows, which a run learns first.
    lines = frozen.differences(frozen.plain(expected), frozen.plain(first), tolerance)
    assert not lines or whole.config.horizon


@every_stream
def test_a_label_is_known_after_its_delay_and_no_row_earlier(whole, tmp_path):
    first = first_difference(whole, tmp_path, changed(whole, whole.config.target))
    assert first >= ROW + whole.late
    # The row's member may go before its label comes.
    assert whole.config.member or first < ROW + whole.late + whole.config.chunk


@every_stream
def test_a_row_is_seen_by_its_own_prediction_and_by_none_before(whole, tmp_path):
    if whole.config.target is None:
        pytest.skip("the input is the label of the row before")
    assert first_difference(whole, tmp_path, changed(whole, "b")) == ROW


@every_stream
def test_each_row_has_a_prediction_and_scores_of_classes_are_those_of_rows_with_a_label(whole):
    """Count precision, recall and alarms again from the predictions."""
    config, found, name = whole.config, whole.found, whole.config.target or SYMBOL
    assert [row["row"] for row in found] == [*range(1, len(whole.rows) + 1)]
    for key in filter(None, (config.member, config.id)):
        assert [row[key] for row in found] == [row[key] for row in whole.table]
    for row in found:
        if shares := row.get("probabilities"):
            assert sum(shares.values()) == pytest.approx(1)
            assert row["probability"] == max(shares.values()) == shares[row[name]]
    last = records(whole.run)[-1]
    if "mae" in last or config.has_members:
        return  # labels of members that go are dropped
    pairs = zip(whole.labels, found[: len(found) - config.delay], strict=False)
    pairs = [(label, row) for label, row in pairs if label and row[name] is not None]
    assert last["scored"] == len(pairs)
    assert last["accuracy"] == pytest.approx(np.mean([row[name] == label for label, row in pairs]))
    for line in last.get("classes", ()):
        assert_caught(line, pairs, name)


def assert_caught(line, pairs, name):
    """Assert that the scores of a class or an alarm are counted from labels and predictions."""
    wanted = line["class"]
    is_label = np.array([label == wanted for label, _ in pairs])
    shares = np.array([row["probabilities"].get(wanted, 0.0) for _, row in pairs])
    found = np.array([row[name] == wanted for _, row in pairs])
    if "alarm" in line:
        found = shares >= line["alarm"]
        assert [row[f"alarm_{wanted}"] for _, row in pairs] == found.tolist()
        precisions = [is_label[shares >= share].mean() for share in shares[is_label]]
        assert line["average_precision"] == pytest.approx(np.mean(precisions), abs=0.005)
    assert (line["labels"], line["predicted"]) == (is_label.sum(), found.sum())
    assert line["recall"] == pytest.approx(found[is_label].mean())
    assert line["precision"] == (pytest.approx(is_label[found].mean()) if found.any() else None)


FORMATS = {
    "absent": lambda rows: [{k: v for k, v in row.items() if v == v} for row in rows],
    "null": lambda rows: [{k: v if v == v else None for k, v in row.items()} for row in rows],
}


def value(text):
    """Return the number of a field, or its text; NaN where there is none."""
    try:
        return float(text) if text not in ("", "NA") else float("nan")
    except ValueError:
        return text


@pytest.mark.parametrize("name", fast(["members in chunks", "dates, irregular"]))
def test_a_stream_is_the_same_in_every_format_and_what_is_missing_may_be_absent(name, tmp_path):
    written = [{k: str(v) for k, v in row.items() if k != "empty"} for row in frozen.table()]
    lines = [",".join(written[0]), *(",".join(row.values()) for row in written)]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    rows = [{k: value(v) for k, v in row.items()} for row in written]
    frame = pd.DataFrame(rows)
    frame.to_parquet(tmp_path / "a.parquet")
    sources = {"csv": tmp_path / "a.csv", "parquet": tmp_path / "a.parquet", "frame": frame}
    for form, changed in FORMATS.items():
        sources[form] = tmp_path / f"{form}.jsonl"
        sources[form].write_text("\n".join(map(json.dumps, changed(rows))) + "\n")
    options, found = OFTEN | STREAMS[name], {}
    options["ignore"] = options["ignore"][:-1]  # `empty` is the last
    # Room for later columns, which JSON lines have, shortens the lags.
    options["model"] = dataclasses.replace(options["model"], experts=("contexts", "row"))
    for form, source in sources.items():
        found[form] = []
        stream.run(source, tmp_path / form, on_prediction=found[form].append, **options)
    for form in sources:
        # Rows of JSON lines have room for later columns, so that sums have another order.
        if form in FORMATS:
            pairs = zip(found[form], found["csv"], strict=True)
            assert not any(frozen.differences(*pair, 1e-9) for pair in pairs), form
        else:
            assert found[form] == found["csv"], form


@pytest.mark.parametrize("model", fast([frozen.FEW, slow(TINY)]))
def test_one_member_is_a_stream_of_its_own(model, tmp_path):
    """One member's rows among those of no other, and the same rows without a name."""
    frozen.write_files(tmp_path)
    header, *lines = (tmp_path / "a.csv").read_text().splitlines(keepends=True)
    own = [line for line in lines if line.split(",")[4] == "x"]
    (tmp_path / "own.csv").write_text("".join([header, *own]))
    options, found = STREAMS["members in chunks"] | {"model": model}, {}
    for name, others in (("who", ()), (None, ("who",))):
        found[name] = []
        more = {"member": name, "ignore": ("c", "y", "empty", *others)}
        config = StreamConfig(str(tmp_path / "own.csv"), **options | more)
        quiet(config, tmp_path / f"{name}", on_prediction=found[name].append)
    for one, two in zip(found["who"], found[None], strict=True):
        assert one.pop("who") == "x"
        assert not frozen.differences(one, two, 1e-6)
