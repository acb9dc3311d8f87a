"""Content of a file's rows: labels, columns that begin empty, targets without numbers."""

import datetime
import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest
from streams import FEW, assert_same_state
from tiers import fast

from foretrace import stream
from foretrace._runs.checkpoint import read_extra
from foretrace._runs.metrics import read_metrics
from foretrace.stream._config import StreamConfig
from foretrace.stream._model_config import ModelConfig
from foretrace.stream._predict import predictions
from foretrace.stream._run import follow

in_c = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
LABELS = [1, 1.0, True, "1", "", None, 0, False, 0.0, "?", "none", " ", "-"]


def run(path, rows, **options):
    """Return directory, last record and saved state of a run over JSON rows or CSV texts."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        lines = [",".join(f'"{value}"' for value in row.values()) for row in rows]
        path.write_text("\n".join([",".join(rows[0]), *lines]) + "\n")
    options = {"target": "y", "model": FEW, "look_ahead": 20} | options
    out = follow(StreamConfig(str(path), **options), path.with_suffix("")).run_dir
    saved = read_extra(out / "checkpoint.safetensors")["intake"]["streams"]
    return out, read_metrics(out / "metrics.jsonl")[-1], saved


def test_labels_of_json_are_classes_as_they_are_and_equal_ones_are_one(tmp_path):
    rows = [{"x": i, "y": label} for i, label in enumerate(LABELS * 4)]
    run_dir, last, saved = run(tmp_path / "a.jsonl", rows, task="classification")
    classes = saved["target"]["classes"]
    assert classes == [1, 0, "?", "none", " ", "-"]
    assert saved["target"]["num_labels"] == len(rows) - 8
    assert last["counts"] == {"missing targets": 8}
    found = [row["y"] for row in predictions(run_dir, str(tmp_path / "a.jsonl"))[1]]
    assert set(map(str, found)) <= {str(label) for label in classes}


def said(capsys):
    return " ".join(capsys.readouterr().err.split())


def test_the_first_rows_are_described_and_what_looks_wrong_is_said(tmp_path, capsys):
    rows = [f'"{i},5 C",3,{i % 2},2024-01-01T00:00:{i:02d},{i / 7}' for i in range(40)]
    (tmp_path / "a.csv").write_text("\n".join(["unit,same,x,t,y", *rows]) + "\n")
    inputs = "inputs, numbers: same, x inputs, categories: unit inputs, times: t"
    expected = {
        "y": [inputs, "target: y, a number"],
        "t": ["target: t, a class", "the target 't' has 40 classes in 40 rows"],
        "same": ["the target 'same' is '3' in all of the first 40 rows"],
    }
    for target, lines in expected.items():
        follow(StreamConfig(str(tmp_path / "a.csv"), target, model=FEW), tmp_path / target, rows=0)
        err = said(capsys)
        lines += ["column 'unit' has 40 different texts in 40 rows, such as '0,5 C'; if they are"]
        assert all(line in err for line in lines)
        assert ("column 'same' is '3' in all of the first 40 rows" in err) == (target != "same")


def test_texts_are_described_and_a_model_that_does_not_see_them_is_named(tmp_path, capsys):
    rows = [f'"Printer {i}, room {i % 7}: does not print",{i / 7}' for i in range(40)]
    (tmp_path / "a.csv").write_text("\n".join(["text,y", *rows]) + "\n")
    unseen = "column 'text' holds texts, which only the experts words and network see"
    for name, options, lines in (
        ("row", {"model": FEW}, ["inputs, texts: text", unseen]),
        ("words", {"model": ModelConfig(experts=("words",))}, ["inputs, texts: text"]),
        ("off", {"model": FEW, "words": 0}, ["inputs, categories: text"]),
        ("none", {"model": FEW, "words": 9, "categorical": ("text",)}, ["--words has no effect"]),
    ):
        follow(StreamConfig(str(tmp_path / "a.csv"), "y", **options), tmp_path / name, rows=0)
        err = said(capsys)
        assert all(line in err for line in lines) and (unseen in lines) == (unseen in err)


WRITTEN = {
    "{0},5": "numbers with a decimal comma, such as '0,5', and they are taken",
    "{0}%": "numbers with a percent sign, such as '0%', and they are taken",
    "1'{0}50.5": "numbers with an apostrophe between thousands",
    "2{0}.03.2025 08:37": 'dates .*give the format, --time "u=%d.%m.%Y %H:%M"',
    "0{1}/03/2025": 'dates .*--time "u=%d/%m/%Y" or --time "u=%m/%d/%Y"',
}


@pytest.mark.parametrize("form", WRITTEN)
def test_numbers_and_dates_that_are_not_read_are_named(tmp_path, capsys, form):
    rows = [{"u": form.format(i % 7, i % 7 + 1), "y": i % 7 / 2} for i in range(40)]
    run(tmp_path / "a.csv", rows)
    assert re.search(f"column 'u' has {WRITTEN[form]}", said(capsys))
    if form == "{0}%":  # as a target, and where numbers are asked for
        run(tmp_path / "b.csv", [{"u": row["y"], "y": row["u"]} for row in rows])
        err = said(capsys)
        assert f"the target 'y' has {WRITTEN[form]}" in err and "--task regression" in err
        run(tmp_path / "d.csv", rows, numeric=("u",))
        assert "and they count as missing" in said(capsys)


SORTED = [{"x": i // 5 + i % 5 / 9, "y": f"c{i // 5}"} for i in range(100)]
CLASSES = [{"x": i, "y": ["up", "NA", "", "down"][i % 4]} for i in range(40)]
NUMBERS = [{"x": i, "y": i / 7 if i < 30 else "2%"} for i in range(40)]
COUNTED = {
    "missing targets": (CLASSES, {}, 10, "the target 'y' is 'NA' in 5 of the first 15 rows"),
    "targets that are no number": (
        NUMBERS,
        {"task": "regression"},
        10,
        "row 31: the target holds '2%', which is no number",
    ),
    "classes without room": (SORTED, {"classes": 16}, 20, "class 'c16' is one more than the 16"),
}


@pytest.mark.parametrize("name", COUNTED)
def test_labels_that_are_not_learned_are_counted_and_told_once(tmp_path, capsys, name):
    rows, options, count, words = COUNTED[name]
    _, last, _ = run(tmp_path / "a.csv", rows, **options)
    assert last["counts"] == {name: count} and said(capsys).count(words) == 1


def test_dates_are_read_by_a_given_format(tmp_path, capsys):
    days = [datetime.datetime(2025, 1 + i % 12, 1 + i % 28, 8, i) for i in range(40)]
    written = [*(f"{day:%d.%m.%Y %H:%M}" for day in days), "soon"]
    rows = [{"on": date, "y": i % 7 / 2} for i, date in enumerate(written)]
    out, last, saved = run(tmp_path / "b.csv", rows, time=("on=%d.%m.%Y %H:%M",))
    assert saved["encoder"]["columns"] == {"on": ["time", 0]}
    assert last["counts"]["not a date"] == 1 and "missing" not in last["counts"]
    assert "'on' is a column of dates and holds 'soon', which counts as missing" in said(capsys)
    assert len(list(predictions(out, str(tmp_path / "b.csv"))[1])) == 41
    iso = [{"on": str(day), "y": row["y"]} for day, row in zip([*days, "soon"], rows, strict=True)]
    assert run(tmp_path / "c.csv", iso)[1]["rmse"] == last["rmse"]


def test_a_column_that_begins_empty_takes_the_kind_of_its_first_value(tmp_path, capsys):
    late = ["NA"] * 30 + ["red", "green"] * 15
    rows = [{"x": i, "late": late[i], "empty": "", "y": i % 7 / 2} for i in range(60)]
    _, last, saved = run(tmp_path / "a.csv", rows)
    kinds = {name: kind for name, (kind, _) in saved["encoder"]["columns"].items()}
    assert kinds == {"x": "numeric", "late": "categorical", "empty": "undecided"}
    words = {name: [*found] for name, found in saved["encoder"]["words"].items()}
    assert words == {"late": ["red", "green"]} and "not a number" not in last["counts"]
    assert "without a value so far: late, empty" in said(capsys)


@pytest.mark.parametrize(
    ("options", "model"),
    fast(
        [
            ({"delay": 3}, {}),
            ({"chunk": 4, "delay": 6}, {"experts": ("row", "network"), "size": "tiny"}),
            ({"member": "who", "members": 2}, {"size": "tiny"}),
            pytest.param({"backend": "native"}, {}, marks=[in_c, pytest.mark.full]),
        ]
    ),
)
def test_room_for_classes_that_come_late_grows_and_the_run_resumes(
    tmp_path, capsys, options, model
):
    rows = [row | {"who": "ab"[i % 2]} for i, row in enumerate(SORTED)]
    options = {"model": ModelConfig(**{"experts": ("baselines", "row")} | model), **options}
    out, last, saved = run(tmp_path / "a.csv", rows, **options)
    err = said(capsys)
    assert err.count("room for 32") == 1 and "without room" not in str(last["counts"])
    assert len(saved["target"]["classes"]) >= 19  # the last one comes too late with a delay
    # The class of the last row is predicted most of the time, also that of the last classes.
    assert last["accuracy"] > last["no_change_accuracy"] - 0.15
    config = StreamConfig(str(tmp_path / "a.csv"), target="y", look_ahead=20, **options)
    for stops in (60, 92):  # before there is no room any more, and after
        follow(config, tmp_path / "cut", resume=stops > 60, rows=stops)
    follow(config, tmp_path / "cut", resume=True)
    assert_same_state(out, tmp_path / "cut")


LIKE_CLASSES = {
    "counts": ([0, 1, 2] * 10 + [0, 50, 51], "row 32: the target is 50, a number"),
    "parts": ([0, 1] * 15 + [0.5], "row 31: the target is 0.5, a number"),
    "two new ones": ([0, 1] * 15 + [2, 3], "row 32: the target is 3, a number"),
    "a rare class": ([0, 1] * 15 + [2] * 5, ""),
    "digits": ([*range(10)] * 4, ""),
    "texts": (["up", "down"] * 15 + [7, 9.5], ""),
    "a code": ([0, 1] * 15 + ["no", 7], ""),
    "a text for no value": ([0, 1] * 15 + ["nan", "inf"], ""),
    "at rest": ([0.0] * 30 + [0.1, 7], "'y' is '0.0' in all of the first 20 rows, and is taken"),
}


@pytest.mark.parametrize("values", LIKE_CLASSES)
def test_numbers_that_are_taken_for_classes_are_told_when_they_come(tmp_path, capsys, values):
    found, message = LIKE_CLASSES[values]
    rows = [{"x": i % 3, "y": value} for i, value in enumerate(found)]
    _, last, _ = run(tmp_path / "a.csv", rows)
    err, told = said(capsys), "if it is a number, begin again with --task regression"
    assert message in err and ("mae" in last) == (values == "at rest")
    assert err.count(told) == (message.startswith("row"))
    run(tmp_path / "b.csv", rows, task="classification")
    assert told not in said(capsys)


def test_a_run_on_a_frame_goes_on_with_a_longer_one_that_begins_with_it(tmp_path):
    frame = pd.DataFrame({"x": np.arange(90) % 7 / 2, "y": np.arange(90) % 5})
    options = {"target": "y", "horizon": 2, "model": FEW}
    first, second = ({"predictions": tmp_path / name} | options for name in ("p.csv", "q.csv"))
    stream.run(frame[:50], tmp_path / "run", **first)
    one = stream.run(frame[:80], tmp_path / "run", resume=True, **first)
    two = stream.run(frame[:80], tmp_path / "other", **second)
    assert one.scores == two.scores and one.forecast == two.forecast
    assert (tmp_path / "p.csv").read_text() == (tmp_path / "q.csv").read_text()
    with pytest.raises(ValueError, match="a frame in memory.*not those that were read"):
        stream.run(frame[1:], tmp_path / "run", resume=True, **first)


def test_a_column_whose_scale_changes_is_told_once(tmp_path, capsys):
    grams, same = np.random.default_rng(0).normal(size=(2, 900))
    grams[301:] *= 1000
    rows = [{"grams": grams[i], "same": same[i], "y": i % 7} for i in range(900)]
    options = {"task": "regression", "log_every": 100, "checkpoint_every": 100}
    out, *_ = run(tmp_path / "a.csv", rows, **options)
    told = [line for line in capsys.readouterr().err.splitlines() if "another unit" in line]
    assert len(told) == 1
    assert "row 400: the numbers of 'grams' were " in told[0]
    whole = read_metrics(out / "metrics.jsonl")
    assert sum("grams" in str(line.get("warnings")) for line in whole) == 1
