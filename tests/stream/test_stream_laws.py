"""Laws of every run on a stream, for the streams whose predictions are frozen and some more."""

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas as pd
import pytest
import test_frozen as frozen
from streams import (
    FEW,
    TINY,
    assert_same_run,
    kill_behind,
    kill_while_writing,
    quiet,
    records,
    rows_in,
)
from tiers import fast

from foretrace import stream
from foretrace._rows.source import SYMBOL
from foretrace.stream._config import StreamConfig
from foretrace.stream._plan import open_source
from foretrace.stream._predict import predictions
from foretrace.stream._saved import opened

KEY = jax.dtypes.prng_key
OFTEN = {"log_every": 50, "checkpoint_every": 70, "look_ahead": 60}
NUMBERS, CLASSES, MEMBERS = (frozen.STREAMS[name] for name in ("number", "class", "members"))
MORE = {
    "everything": MEMBERS
    | {"reset": "start", "horizon": 2, "delay": 1, "model": TINY}
    | {"ignore": ("t", "c", "k", "empty")},
    "members in chunks": CLASSES
    | {"member": "who", "members": 2, "reset": "start", "delay": 2, "chunk": 7}
    | {"ignore": ("t", "c", "y", "empty")},
    "all layers": CLASSES
    | {"delay": 1, "model": dataclasses.replace(TINY, depth=2, rule="hybrid(depth=2)")},
    "another cell": NUMBERS
    | {"model": dataclasses.replace(TINY, cell="min-gru", state_size=4, rule="hybrid")},
    "the paper's rule": NUMBERS
    | {"outliers": "mask", "model": dataclasses.replace(TINY, rule="online")},
}
STREAMS = {name: options for name, options in frozen.STREAMS.items() if name != "stop"} | MORE
IN_FAST = ("late classes", "everything", "members in chunks", "text")
ORDER = [*IN_FAST, *(name for name in STREAMS if name not in IN_FAST)]
ROW = 84
"""Row, counted from 0, that is changed."""


class Whole(NamedTuple):
    """An undisturbed run: its configuration, directory, predictions, and the rows of its file."""

    name: str
    config: StreamConfig
    run: Path
    found: list[dict[str, Any]]
    header: list[str]
    rows: list[str]

    @property
    def late(self):
        """Rows until a label is known, beside the row's own."""
        return self.config.delay + (self.config.horizon == 0)

    def moved(self, folder, rows):
        """Return the configuration of a run on other rows, with predictions in a file."""
        text = "".join([*self.header, *rows])
        path = folder / Path(self.config.source).name
        path.write_text(text)
        return dataclasses.replace(
            self.config, source=str(path), predictions=str(folder / "p.jsonl")
        )

    def changed(self, name):
        """Return the rows with another value of a column in one."""
        if self.config.target is None:
            return [*self.rows[:ROW], "Q", *self.rows[ROW + 1 :]]
        (names,), (row,) = csv.reader(self.header), csv.reader([self.rows[ROW]])
        at = names.index(name)
        row[at] = {"up": "down", "down": "up"}.get(row[at]) or str(float(row[at]) + 0.5)
        return [*self.rows[:ROW], ",".join(row) + "\n", *self.rows[ROW + 1 :]]

    def first_difference(self, folder, rows):
        """Return the first row whose prediction is another one where a file has these rows."""
        found = []
        quiet(self.moved(folder, rows), folder / "run", rows=ROW + 30, on_prediction=found.append)
        pairs = enumerate(zip(found, self.found, strict=False))
        return next((at for at, (one, two) in pairs if one != two), len(found))


@pytest.fixture(scope="module", params=fast(ORDER, len(IN_FAST)))
def whole(request, tmp_path_factory):
    folder, name, found = tmp_path_factory.mktemp("whole"), request.param, []
    frozen.write_files(folder)
    path = folder / ("a.txt" if name == "text" else "a.csv")
    config = StreamConfig(str(path), **OFTEN | STREAMS[name])
    quiet(config, folder / "run", on_prediction=found.append)
    lines = list(path.read_text()) if name == "text" else path.read_text().splitlines(True)
    header, rows = ([], lines) if name == "text" else (lines[:1], lines[1:])
    return Whole(name, config, folder / "run", found, header, rows)


def test_a_run_that_is_stopped_killed_and_fed_by_a_growing_file_is_the_whole_one(whole, tmp_path):
    run, (begin, end) = tmp_path / "run", (whole.rows[:101], whole.rows[101:])
    config = whole.moved(tmp_path, [*begin[:-1], begin[-1][:-2]])  # the last line is torn
    quiet(config, run, rows=33)
    quiet(config, run, resume=True)
    assert rows_in(run) <= 101
    config = whole.moved(tmp_path, begin + end)
    kill_behind(config, run, 150, resume=True)
    kill_while_writing(config, run, 20, resume=True)
    quiet(config, run, resume=True, rows=202)
    result = quiet(config, run, resume=True)
    assert_same_run(whole.run, run)
    assert result.position.row == len(whole.rows) and not result.stopped
    lines = (tmp_path / "p.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == json.loads(json.dumps(whole.found))
    assert bool(result.forecast) == (whole.config.horizon > 0)
    newest = {line.get("who"): line for line in whole.found}
    for line in result.forecast:
        assert line["y"] == newest[line.get("who")][f"y+{line['ahead']}"]
    chunk = whole.config.chunk
    steps = [line["step"] for line in records(run) if line["kind"] == "stream"]
    assert steps[:3] == [-(-rows // chunk) * chunk for rows in (50, 100, 150)]
    last = records(run)[-1]
    assert last["refused"] == 0 and sum(last["weights"].values()) == pytest.approx(1)
    if whole.config.member:
        counts = last["members"]
        assert counts["joins"] - counts["evictions"] == counts["present"] == whole.config.members
        assert (counts["resets"] > 0) == (whole.config.reset is not None)


def taught(intake, state):
    """Return what labels have taught the experts and the mixture."""
    with jax.enable_x64(True):
        state = intake.mixture.packing.unpack(state)
    found = jax.tree.leaves((state.experts, state.weights))
    return [np.array(leaf) for leaf in found if not jax.dtypes.issubdtype(leaf.dtype, KEY)]


def test_predicting_learns_nothing_and_says_what_the_run_says(whole, tmp_path):
    at = 128 - 128 % whole.config.chunk
    rows, more = whole.rows[:at], whole.rows[at : at + 40]
    run = quiet(whole.moved(tmp_path, rows), tmp_path / "run").run.path
    before = (run / "checkpoint.safetensors").read_bytes()
    source = whole.moved(tmp_path, more).source
    names, found = predictions(run, source)
    found = list(found)
    assert list(predictions(run, source)[1]) == found and len(found) == len(more)
    assert (run / "checkpoint.safetensors").read_bytes() == before
    first, expected = found[0], whole.found[at]
    assert [*first][: len(names)] == names and first.keys() == expected.keys()
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


def test_a_label_is_known_after_its_delay_and_no_row_earlier(whole, tmp_path):
    first = whole.first_difference(tmp_path, whole.changed(whole.config.target))
    assert first >= ROW + whole.late
    # The row's member may go before its label comes.
    assert whole.config.member or first < ROW + whole.late + whole.config.chunk


def test_a_row_is_seen_by_its_own_prediction_and_by_none_before(whole, tmp_path):
    if whole.config.target is None:
        pytest.skip("the input is the label of the row before")
    assert whole.first_difference(tmp_path, whole.changed("b")) == ROW


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


@pytest.mark.parametrize("name", ["number", "members in chunks", "dates, irregular"])
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
    for form, source in sources.items():
        found[form] = []
        stream.run(source, tmp_path / form, on_prediction=found[form].append, **options)
    for form in sources:
        assert found[form] == found["csv"], form


@pytest.mark.parametrize("model", fast([FEW, TINY]))
def test_one_member_is_a_stream_of_its_own(model, tmp_path):
    """One member's rows among those of no other, and the same rows without a name."""
    frozen.write_files(tmp_path)
    header, *lines = (tmp_path / "a.csv").read_text().splitlines(keepends=True)
    own = [line for line in lines if line.split(",")[4] == "x"]
    (tmp_path / "own.csv").write_text("".join([header, *own]))
    options, found = MEMBERS | {"model": model, "reset": "start", "members": 3}, {}
    for name, others in (("who", ()), (None, ("who",))):
        found[name] = []
        more = {"member": name, "ignore": ("t", "c", "k", "empty", *others)}
        config = StreamConfig(str(tmp_path / "own.csv"), **options | more)
        quiet(config, tmp_path / f"{name}", on_prediction=found[name].append)
    for one, two in zip(found["who"], found[None], strict=True):
        assert one.pop("who") == "x"
        assert one == pytest.approx(two, rel=1e-5, abs=1e-6)
