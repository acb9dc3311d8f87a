"""Content of a file's rows: labels, columns that begin empty, targets without numbers."""

import datetime
import json
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
    classes, num_labels, _ = saved["target"]
    assert classes == [1, 0, "?", "none", " ", "-"] and num_labels == len(rows) - 8
    assert last["counts"] == {"missing targets": 8}
    found = [row["y"] for row in predictions(run_dir, str(tmp_path / "a.jsonl"))[1]]
    assert set(map(str, found)) <= {str(label) for label in classes}


def test_labels_of_csv_are_classes_and_what_looks_missing_is_told(tmp_path, capsys):
    rows = [{"x": i, "y": ["up", "NA", "", "down"][i % 4]} for i in range(40)]
    _, last, saved = run(tmp_path / "a.csv", rows)
    assert saved["target"][0] == ["up", "NA", "down"] and last["counts"] == {"missing targets": 10}
    assert "the target 'y' is 'NA' in 5 of the first 15 rows" in " ".join(
        capsys.readouterr().err.split()
    )


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (lambda i: f"{i % 7},5", "numbers with a decimal comma, such as '0,5', and they are taken"),
        (lambda i: f"{i % 7}%", "numbers with a percent sign, such as '0%', and they are taken"),
        (lambda i: f"1'{i % 7}50.5", "numbers with an apostrophe between thousands"),
        (lambda i: f"{i % 7 + 20}.03.2025 08:37", 'give the format, --time "u=%d.%m.%Y %H:%M"'),
        (lambda i: f"0{i % 7 + 1}/03/2025", '--time "u=%d/%m/%Y" or --time "u=%m/%d/%Y"'),
    ],
)
def test_numbers_and_dates_that_are_not_read_are_named(tmp_path, capsys, written, said):
    rows = [{"u": written(i), "y": i % 7 / 2} for i in range(40)]
    run(tmp_path / "a.csv", rows)
    assert f"column 'u' has {said}" in (err := " ".join(capsys.readouterr().err.split())) or (
        "column 'u' has dates" in err and said in err
    )
    if "numbers" in said:
        swapped = [{"u": row["y"], "y": row["u"]} for row in rows]
        run(tmp_path / "b.csv", swapped)
        err = " ".join(capsys.readouterr().err.split())
        assert f"the target 'y' has {said}" in err and "--task regression" in err
        (tmp_path / "c").mkdir()
        with pytest.raises(ValueError, match="have no number in 'y'.*numbers with a"):
            run(tmp_path / "c" / "c.csv", swapped, task="regression")
        run(tmp_path / "d.csv", rows, numeric=("u",))
        assert "and they count as missing" in " ".join(capsys.readouterr().err.split())


def test_dates_are_read_by_a_given_format(tmp_path, capsys):
    dates = [f"{1 + i % 28}.{1 + i % 12}.2025 08:{i:02d}" for i in range(40)]
    rows = [{"on": date, "y": i % 7 / 2} for i, date in enumerate([*dates, "soon"])]
    run(tmp_path / "a.csv", rows)
    out, last, saved = run(tmp_path / "b.csv", rows, time=("on=%d.%m.%Y %H:%M",))
    assert saved["encoder"]["columns"][0] == ["on", "time", 0]
    assert last["counts"]["not a date"] == 1 and "missing" not in last["counts"]
    err = " ".join(capsys.readouterr().err.split())
    assert "'on' is a column of dates and holds 'soon', which counts as missing" in err
    table = list(predictions(out, str(tmp_path / "a.csv"))[1])
    assert len(table) == 41
    iso = [
        row | {"on": datetime.datetime(2025, 1 + i % 12, 1 + i % 28, 8, i).isoformat()}
        for i, row in enumerate(rows[:40])
    ]
    _, expected, _ = run(tmp_path / "c.csv", [*iso, rows[40]])
    assert {"mae": last["mae"], "rmse": last["rmse"]}.items() <= expected.items()


def test_a_column_that_begins_empty_takes_the_kind_of_its_first_value(tmp_path, capsys):
    rows = [
        {"x": i, "late": "NA" if i < 30 else ["red", "green"][i % 2], "empty": "", "y": i % 7 / 2}
        for i in range(60)
    ]
    _, last, saved = run(tmp_path / "a.csv", rows)
    kinds = {name: kind for name, kind, _ in saved["encoder"]["columns"]}
    assert kinds == {"x": "numeric", "late": "categorical", "empty": "undecided"}
    assert saved["encoder"]["words"] == [["red", "green"]] and "not a number" not in last["counts"]
    assert "without a value so far: late, empty" in " ".join(capsys.readouterr().err.split())


def test_targets_that_are_no_numbers_are_told_or_refused(tmp_path, capsys):
    rows = [{"x": i, "y": i / 7 if i < 30 else "2%"} for i in range(40)]
    _, last, _ = run(tmp_path / "a.csv", rows, task="regression")
    assert last["counts"]["targets that are no number"] == 10
    said = " ".join(capsys.readouterr().err.split())
    assert (
        said.count("the target holds '2%', which is no number") == 1
        and "row 31: the target" in said
    )


SORTED = [{"x": i // 5 + i % 5 / 9, "y": f"c{i // 5}"} for i in range(100)]


def test_a_class_without_given_room_is_told(tmp_path, capsys):
    _, last, _ = run(tmp_path / "a.csv", SORTED, classes=16)
    said = " ".join(capsys.readouterr().err.split())
    assert last["counts"]["classes without room"] == 20
    assert said.count("the class 'c16' is one more than the 16 there is room for") == 1


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
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("room for 32") == 1 and "without room" not in str(last["counts"])
    assert len(saved["target"][0]) >= 19  # the last one comes too late with a delay
    # The class of the last row is predicted most of the time, also that of the last classes.
    assert last["accuracy"] > last["no_change_accuracy"] - 0.15
    config = StreamConfig(str(tmp_path / "a.csv"), target="y", look_ahead=20, **options)
    for stops in (60, 92):  # before there is no room any more, and after
        follow(config, tmp_path / "cut", resume=stops > 60, rows=stops)
    follow(config, tmp_path / "cut", resume=True)
    assert_same_state(out, tmp_path / "cut")


NUMBERS_LIKE_CLASSES = {
    "counts": ([0, 1, 2] * 10 + [0, 50, 51], "row 32: the target is 50, a number"),
    "parts": ([0, 1] * 15 + [0.5], "row 31: the target is 0.5, a number"),
    "two new ones": ([0, 1] * 15 + [2, 3], "row 32: the target is 3, a number"),
    "at rest": ([0.0] * 30 + [0.1, 7], "'y' is '0.0' in all of the first 20 rows, and is taken"),
}
CLASSES_LIKE_NUMBERS = {
    "a rare class": [0, 1] * 15 + [2] * 5,
    "digits": [*range(10)] * 4,
    "texts": ["up", "down"] * 15 + [7, 9.5],
    "a code": [0, 1] * 15 + ["no", 7],
    "a text for no value": [0, 1] * 15 + ["nan", "inf"],
}


@pytest.mark.parametrize("values", [*NUMBERS_LIKE_CLASSES, *CLASSES_LIKE_NUMBERS])
def test_numbers_that_are_taken_for_classes_are_told_when_they_come(tmp_path, capsys, values):
    found, message = NUMBERS_LIKE_CLASSES.get(values) or (CLASSES_LIKE_NUMBERS[values], None)
    rows = [{"x": i % 3, "y": value} for i, value in enumerate(found)]
    _, last, _ = run(tmp_path / "a.csv", rows)
    said = " ".join(capsys.readouterr().err.split())
    told = "if it is a number, begin again with --task regression"
    assert said.count(told) == (message is not None and values != "at rest")
    assert message is None or message in said
    assert ("mae" in last) == (values == "at rest")
    _ = run(tmp_path / "b.csv", rows, task="classification", look_ahead=20)
    assert told not in " ".join(capsys.readouterr().err.split())


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
    draw = np.random.default_rng(0)
    rows = [
        {
            "grams": f"{draw.normal() * (1000 if i > 300 else 1):.3f}",
            "same": draw.normal(),
            "y": i % 7,
        }
        for i in range(900)
    ]
    options = {"task": "regression", "log_every": 100, "checkpoint_every": 100}
    out, *_ = run(tmp_path / "a.csv", rows, **options)
    told = [line for line in capsys.readouterr().err.splitlines() if "deviation of" in line]
    assert len(told) == 1
    assert "row 400: the numbers of 'grams' had a deviation of" in told[0]
    whole = read_metrics(out / "metrics.jsonl")
    assert sum("grams" in str(line.get("warnings")) for line in whole) == 1
