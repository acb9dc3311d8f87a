"""Labels as lines of their own: rows wait under their ids, labels come in any order, or never."""

import csv
import dataclasses
import json
import warnings

import numpy as np
import pytest
from streams import LAGS, OFTEN, assert_same_run, kill_behind, quiet, records, rows_in

from foretrace.stream.read.waiting import WaitingRoom
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.predict import predictions
from foretrace.stream.runs.run import follow

ROWS, ROOM = 160, 12
OPTIONS = {"target": "y", "task": "regression", "id": "id", "waiting": ROOM, "member": "who"}
OPTIONS |= {"members": 2, "model": LAGS, "ignore": ("day",)} | OFTEN


def events():
    """Return rows, and labels up to ten rows later; one in twelve never comes."""
    draw, due = np.random.default_rng(0), {}
    for t in range(ROWS):
        a, who = float(draw.normal()), "uv"[draw.integers(2)]
        yield {"id": f"r{t}", "who": who, "a": a, "day": f"2026-01-{1 + t // 8:02}", "y": ""}
        if t % 12:
            due.setdefault(t + int(draw.integers(10)), []).append((f"r{t}", 3 * a + (who == "u")))
        for id, y in due.pop(t, ()):
            yield {"id": id, "y": y}
    for _ in range(2):
        yield {"id": "last", "who": "u", "a": 0.5, "y": ""}
    for id, y in (("last", 2), ("last", 2), ("last", 9), ("none", 1)):
        yield {"id": id, "y": y}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder, found = tmp_path_factory.mktemp("ids"), []
    with open(folder / "a.csv", "w", newline="") as file:
        table = csv.DictWriter(file, ["id", "who", "a", "day", "y"])
        table.writeheader()
        table.writerows(events())
    config = StreamConfig(str(folder / "a.csv"), **OPTIONS)
    quiet(config, folder / "run", on_prediction=found.append)
    return config, folder / "run", found


def test_each_row_is_predicted_once_and_labels_are_learned_whatever_their_order(whole):
    _, run, found = whole
    assert [line["id"] for line in found] == [f"r{t}" for t in range(ROWS)] + ["last"] * 2
    assert found[-1]["y"] == found[-2]["y"]  # the same row again: the same answer
    last = records(run)[-1]
    assert last["counts"]["other labels"] == last["counts"]["unknown ids"] == 1
    # One row in twelve waits for ever, and there is room for twelve.
    assert last["counts"]["rows dropped"] > 0
    assert last["mae"] < 0.8 * last["mean_mae"]


def test_a_run_with_rows_that_wait_goes_on_bit_for_bit(whole, tmp_path):
    config, run, found = whole
    again, part = dataclasses.replace(config, predictions=str(tmp_path / "p.csv")), tmp_path / "run"
    quiet(again, part, rows=61)
    assert rows_in(part) == 61
    kill_behind(again, part, 140, resume=True)
    quiet(again, part, resume=True)
    assert_same_run(run, part)
    with open(tmp_path / "p.csv", newline="") as file:
        assert [row["y"] for row in csv.DictReader(file)] == [
            "" if line["y"] is None else str(line["y"]) for line in found
        ]


def test_estimators_give_the_answers_of_the_file(whole):
    pytest.importorskip("river")
    from foretrace.stream import Regressor

    config, _, found = whole
    model = Regressor(model=LAGS, waiting=ROOM, member="who", members=2, features=2)
    answers = []
    warnings.simplefilter("ignore")
    for event in events():
        if "who" in event and event["who"]:
            row = {name: event[name] for name in ("who", "a")}
            answers.append(model.predict_one(row, id=event["id"]))
        elif event["y"] in (1, 9):
            with pytest.raises((KeyError, ValueError), match=event["id"]):
                model.learn_one(None, event["y"], id=event["id"])
        else:
            model.learn_one(None, event["y"], id=event["id"])
    whole = [line["y"] or 0.0 for line in found]  # before the first label, 0 for none
    np.testing.assert_allclose(answers, whole, rtol=1e-9, atol=1e-9)


def test_rows_wait_no_longer_than_they_are_kept(whole, tmp_path, capsys):
    config, *_ = whole
    small = dataclasses.replace(config, waiting=3, ignore=(), keep="1d")
    quiet(small, tmp_path / "small")
    counts = records(tmp_path / "small")[-1]["counts"]
    assert counts["rows dropped"] > 20 and counts["unknown ids"] > 20
    room = WaitingRoom(3)
    for day in range(3):
        room.take(day, None, time=float(day))
    room.expire(2.5, 1.0)
    assert [*room.rows] == [2] and room.counts["rows dropped"] == 2


def test_a_row_without_a_time_is_as_old_as_the_row_before_it():
    room = WaitingRoom(9)
    room.take("first", None)
    room.expire(1.0, 5.0)
    for name, time in (("a", 1.0), ("undated", None), ("b", 4.0), ("later", None)):
        room.take(name, None, time=time)
    room.expire(7.0, 5.0)
    assert [*room.rows] == ["b", "later"]


def test_every_text_but_an_empty_one_is_a_class_or_a_category_also_by_id(tmp_path):
    table = [("id", "kind", "y")]
    table += [(f"z{t}", "none" if t % 5 else "odd", "na" if t % 5 else "-") for t in range(30)]
    table += [(f"w{t}", "none", "") for t in range(9)] + [(f"w{t}", "", "?") for t in range(9)]
    table += [("w1", "", "null"), ("w2", "", "?")]
    with open(tmp_path / "a.csv", "w", newline="") as file:
        csv.writer(file).writerows(table)
    options = {"target": "y", "task": "classification", "id": "id", "categorical": ("kind",)}
    config = StreamConfig(str(tmp_path / "a.csv"), **options, waiting=20, model=LAGS)
    quiet(config, tmp_path / "run")
    last = records(tmp_path / "run")[-1]
    assert last["scored"] > 30 and last["counts"] == {"other labels": 1}  # "null" is not "?"


def test_ids_are_compared_by_their_text(tmp_path):
    room = WaitingRoom(3)
    room.take(900, None)  # as an older checkpoint has it
    room.name_by_text()
    assert room.pop("900", 1.0) == 0 and room.pop("900", 1.0) is None
    rows = [{"id": t, "a": t % 3, "y": None} for t in range(20)]
    rows += [{"id": f" {t}", "y": t % 3} for t in range(20)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"target": "y", "task": "regression", "id": "id", "waiting": 20, "model": LAGS}
    quiet(StreamConfig(str(tmp_path / "a.jsonl"), **options), tmp_path / "run")
    assert records(tmp_path / "run")[-1]["counts"] == {}


def test_further_rows_are_predicted_and_their_labels_by_id_are_not(whole, tmp_path, caplog):
    config, run, _ = whole
    names, found = predictions(run, config.source)
    found = list(found)
    assert "y" in names and len(found) == ROWS + 2
    assert "labels by id, which were skipped" in caplog.text
    (tmp_path / "b.csv").write_text("who,a,day,y\nu,1.0,2026-01-30,\n")  # no column of ids
    assert len(list(predictions(run, str(tmp_path / "b.csv"))[1])) == 1


REFUSED = [
    ({"id": None}, "waiting=12 needs --id"),
    ({"delay": 2}, "waiting=12 beside --delay"),
    ({"outliers": "stop"}, "beside --outliers stop"),
    ({"keep": "soon"}, "keep='soon', expected a time such as 90m, 12h or 7d"),
    ({"waiting": 0, "keep": "7d"}, "keep='7d' needs --waiting"),
]


@pytest.mark.parametrize(("options", "words"), REFUSED)
def test_options_that_do_not_fit_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        StreamConfig("a.csv", **OPTIONS | options)


def test_a_label_of_its_own_without_room_for_rows_that_wait_is_told_of(tmp_path, capsys):
    rows = [f"r{i},{i},{i}\n" for i in range(30)]
    (tmp_path / "a.csv").write_text("".join(["id,a,y\n", *rows, "r3,,5\n"]))
    options = OPTIONS | {"waiting": 0, "member": None, "ignore": ()}
    follow(StreamConfig(str(tmp_path / "a.csv"), **options), tmp_path / "run")
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("row 31 has an id and a target alone") == 1 and "--waiting" in said
