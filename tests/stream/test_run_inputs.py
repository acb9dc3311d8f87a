"""What a run makes of the content of rows, and what it says about it."""

import datetime
import json
import re

import numpy as np
import pandas as pd
import pytest
from streams import FEW, assert_same_state
from tiers import fast, slow

from foretrace import stream
from foretrace._runs.checkpoint import read_extra
from foretrace._runs.metrics import read_metrics
from foretrace.stream.model.model_config import ModelConfig
from foretrace.stream.read.formats import date_formats
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.predict import predictions
from foretrace.stream.runs.run import follow

pytestmark = pytest.mark.usefixtures("twenty_rows_decide")


def run(path, rows, stop=None, **options):
    """Return the directory of a run over rows of CSV."""
    lines = [",".join(f'"{value}"' for value in row.values()) for row in rows]
    path.write_text("\n".join([",".join(rows[0]), *lines]) + "\n")
    options = {"target": "y", "model": FEW} | options
    return follow(StreamConfig(str(path), **options), path.with_suffix(""), rows=stop).run_dir


def last_of(run):
    """Return the last record of a run."""
    return read_metrics(run / "metrics.jsonl")[-1]


def saved(run):
    """Return the saved state of the streams of a run."""
    return read_extra(run / "checkpoint.safetensors")["intake"]["streams"]


def said(capsys):
    return " ".join(capsys.readouterr().err.split())


def written(form):
    """Return rows of a column of numbers or dates in a form, and of a number."""
    return [{"u": form.format(i % 7, i % 7 + 1), "y": i % 7 / 2} for i in range(20)]


def labels(*values):
    return [{"x": i % 3, "y": value} for i, value in enumerate(values)]


UNITS = [
    {"unit": f"{i},5 C", "same": 3, "x": i % 2, "t": f"2024-01-01T00:00:{i:02d}", "y": i / 7}
    for i in range(20)
]
TEXTS = [{"text": f"Printer {i}, room {i % 7}: does not print", "y": i / 7} for i in range(20)]
LATE = [{"x": i, "late": "red" if i > 30 else "NA", "y": i % 7 / 2} for i in range(60)]
SORTED = [{"x": i // 5 + i % 5 / 9, "y": f"c{i // 5}"} for i in range(100)]
CLASSES = [{"x": i, "y": ["up", "NA", "", "down"][i % 4]} for i in range(40)]
NUMBERS = [{"x": i, "y": i / 7 if i < 30 else "2%"} for i in range(40)]
GRAMS = [{"g": (-1) ** i * (1000 if i > 300 else 1), "y": i % 7} for i in range(900)]
COUNTS, REST = labels(*[0, 1, 2] * 10, 0, 50, 51), labels(*[0.0] * 20, 0.1)
UNSEEN = "column 'text' holds texts, which only the experts words and network see"
AS_CLASSES = "if it is a number, begin again with --task regression"
WORDS, STOP = ModelConfig(experts=("words",)), {"stop": 0}
NUMBER = {"task": "regression"}
OFTEN = NUMBER | {"log_every": 100, "checkpoint_every": 100}
SAID = {
    "columns": (
        UNITS,
        STOP,
        [
            "inputs, numbers: same, x inputs, categories: unit inputs, times: t",
        ],
    ),
    "many classes": (
        UNITS,
        STOP | {"target": "t"},
        ["'t' has 20 classes in 20 rows"],
    ),
    "texts": (TEXTS, STOP, ["inputs, texts: text", UNSEEN]),
    "texts that are seen": (TEXTS, STOP | {"model": WORDS}, ["inputs, texts: text"]),
    "texts with many words": (
        TEXTS,
        STOP | {"model": WORDS, "words": 40},
        ["'text' has 25 different words in its first 20 texts, .* 40 inputs.* --words 128"],
    ),
    "texts as categories": (TEXTS, STOP | {"words": 0}, ["inputs, categories: text"]),
    "no value at first": (LATE, STOP, ["without a value so far: late"]),
    "a comma": (written("{0},5"), STOP, ["a decimal comma, such as '0,5', and they are taken"]),
    "percent": (written("{0}%"), STOP | {"numeric": ("u",)}, ["they count as missing"]),
    "a target": (written("{0}%"), STOP | {"target": "u"}, ["a percent sign.*--task regression"]),
    "dates": (written("0{1}/03/2025"), STOP, ['dates .*"u=%d/%m/%Y" or --time "u=%m/%d/%Y"']),
    "missing targets": (CLASSES, {}, ["the target 'y' is 'NA' in 5 of the first 15 rows"]),
    "targets that are no number": (NUMBERS, NUMBER, ["row 31: the target holds '2%', which is no"]),
    "classes without room": (SORTED, {"classes": 16}, ["class 'c16' is one more than the 16"]),
    "a far number": (COUNTS, {}, ["row 32: the target is 50, a number", AS_CLASSES]),
    "a rare class": (labels(*[0, 1] * 15, *[2] * 5), {}, []),
    "numbers as classes": (COUNTS, {"task": "classification"}, []),
    "labels below": (NUMBERS, NUMBER | {"at_least": 1, "horizon": 1}, ["the target is 0, and no"]),
    "at rest": (REST, STOP, ["'y' is '0.0' in all of the first 20 rows, and is taken for a numb"]),
    "another unit": (GRAMS, OFTEN, ["row 400: the numbers of 'g' were "]),
}
"""Rows, options, and what is said of them once; nothing else that looks wrong is said."""

COUNTED = {"missing targets": 10, "targets that are no number": 10, "classes without room": 20}


@pytest.mark.parametrize("name", SAID)
def test_what_looks_wrong_in_rows_is_said_once(tmp_path, capsys, name):
    rows, options, lines = SAID[name]
    found = run(tmp_path / "a.csv", rows, **options)
    err = said(capsys)
    assert [len(re.findall(line, err)) for line in lines] == [1] * len(lines), err
    for line in (UNSEEN, AS_CLASSES, "deviation of"):
        assert any(line in one for one in lines) or line not in err
    if name in COUNTED:
        assert last_of(found)["counts"] == {name: COUNTED[name]}


FORMS = (
    "%d.%m.%Y %H:%M",
    "%d/%b/%Y:%H:%M:%S %z",
    "%y %b %d %H.%M %Z",
    "d=%d m=%m %Y %H:%M",
    "unix",
)


@pytest.mark.parametrize("form", FORMS)
def test_dates_are_read_by_a_given_format(tmp_path, capsys, form):
    zone = datetime.timezone(datetime.timedelta(hours=-7 * ("%z" in form)))
    first = datetime.datetime(2025, 1, 1, 8, tzinfo=zone)
    days = [first + datetime.timedelta(days=31 * i % 365, minutes=i) for i in range(40)]
    written = [f"{day.timestamp():.0f}" if form == "unix" else f"{day:{form}}" for day in days]
    if form in (FORMS[1], "unix"):  # a run names it
        assert date_formats(written) == [form]
    rows = [{"on": date, "y": i % 7 / 2} for i, date in enumerate([*written, "soon"])]
    out = run(tmp_path / "b.csv", rows, time=(f"on={form}",))
    last = last_of(out)
    assert saved(out)["encoder"]["columns"] == {"on": ["time", 0]}
    assert last["counts"]["not a date"] == 1 and "missing" not in last["counts"]
    assert "'on' is a column of dates and holds 'soon', which counts as missing" in said(capsys)
    assert len(list(predictions(out, str(tmp_path / "b.csv"))[1])) == 41
    iso = [{"on": str(day), "y": row["y"]} for day, row in zip([*days, "soon"], rows, strict=True)]
    assert last_of(run(tmp_path / "c.csv", iso))["rmse"] == last["rmse"]
    if form == "unix":
        frame = pd.DataFrame(rows).assign(on=[int(day.timestamp()) for day in days] + [None])
        options = {"target": "y", "time": ("on=unix",), "model": FEW}
        assert stream.run(frame, tmp_path / "run", **options).scores["rmse"] == last["rmse"]


GROWING = [
    {"ignore": ("who",)},
    slow({"member": "who", "members": 2, "delay": 1}),
]


@pytest.mark.parametrize("options", fast(GROWING))
def test_room_for_classes_that_come_late_grows_and_the_run_resumes(tmp_path, capsys, options):
    rows = [row | {"who": "ab"[i % 2]} for i, row in enumerate(SORTED)]
    options = {"model": FEW} | options
    out = run(tmp_path / "a.csv", rows, **options)
    err, last = said(capsys), last_of(out)
    assert err.count("room for 32") == 1 and "without room" not in str(last["counts"])
    assert len(saved(out)["target"]["classes"]) >= 19  # the last one comes too late with a delay
    # The class of the last row is predicted most of the time, also that of the last classes.
    assert last["accuracy"] > last["no_change_accuracy"] - 0.15
    config = StreamConfig(str(tmp_path / "a.csv"), target="y", **options)
    for stops in (60, 92):  # before there is no room any more, and after
        follow(config, tmp_path / "cut", resume=stops > 60, rows=stops)
    follow(config, tmp_path / "cut", resume=True)
    assert_same_state(out, tmp_path / "cut")


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


def test_a_column_of_json_that_appears_late_is_learned_and_the_run_resumes(tmp_path, capsys):
    late = np.random.default_rng(0).normal(size=600)
    rows = [
        {"y": 3 * late[i] * (i >= 240), "no": i} | ({"late": late[i]} if i >= 240 else {})
        for i in range(600)
    ]
    path, found = tmp_path / "a.jsonl", []
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"target": "y", "model": FEW, "id": "no"}
    config = StreamConfig(str(path), **options)
    out = follow(config, tmp_path / "run", on_prediction=found.append).run_dir
    errors = [abs((one["y"] or 0) - row["y"]) for one, row in zip(found, rows, strict=True)]
    assert np.mean(errors[400:]) < 0.2  # without the column, 2.4
    assert saved(out)["encoder"]["columns"].keys() == {"late"}
    for stops in (230, 500):
        follow(config, tmp_path / "cut", resume=stops > 230, rows=stops)
    follow(config, tmp_path / "cut", resume=True)
    assert_same_state(out, tmp_path / "cut")
    again = [one["y"] for one in predictions(out, str(path))[1]]
    path.write_text(path.read_text().replace("late", "other"))
    assert [one["y"] for one in predictions(out, str(path))[1]] != again


@pytest.mark.parametrize(("wait", "reset"), [({"horizon": 2}, False), ({"delay": 3}, True)])
def test_a_run_whose_members_lose_every_label_fails_and_says_why(tmp_path, wait, reset):
    rows = [{"who": i % 6 * (not reset), "new": i % 3 == 0, "y": i / 7} for i in range(60)]
    options = {"task": "regression", "member": "who"} | wait
    lose = options | ({"reset": "new"} if reset else {"members": 3})
    with pytest.raises(ValueError, match=r"nothing was learned from 60 rows.*raise --members"):
        run(tmp_path / "a.csv", rows, **lose)
    assert last_of(run(tmp_path / "b.csv", rows, ignore=("new",), **options))["scored"] > 30
