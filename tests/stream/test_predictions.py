"""Predictions that leave a run while it learns: every row once, in order, after any kill."""

import csv
import dataclasses
import json
import os
import re
import sys

import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from streams import FEW, Killed, assert_same_state, kill_while_writing, quiet

from foretrace._runs import follow
from foretrace.cli import _main as cli
from foretrace.stream import run
from foretrace.stream.read.frame import FrameSource
from foretrace.stream.read.lines import SourceError
from foretrace.stream.read.source import Source
from foretrace.stream.read.target import ClassTarget
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.predictions import LineWriter

ROWS = 60


WORDS = "stream a.csv --target c --id key --ignore y --experts baselines row"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the present folder, with a stream in a file."""
    rows = [f"k{i},{i % 3},{i * i % 5 + i % 2 / 2},{'uvw'[i * i % 3]}" for i in range(ROWS)]
    (tmp_path / "a.csv").write_text("\n".join(["key,x,y,c", *rows]) + "\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def config_for(name="p.csv", **options):
    options = {
        "target": "c",
        "id": "key",
        "ignore": ("y",),
        "model": FEW,
        "log_every": 10,
    } | options
    return StreamConfig("a.csv", predictions=name, **options)


TEXT = st.text(st.sampled_from("a,\";'\r\n\t \x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"), min_size=1)


@given(header=TEXT, rows=st.lists(st.tuples(TEXT, TEXT, TEXT), min_size=1, max_size=4))
@example("y", [("a", "b", "x\r999,y,0.9"), ("\r", "c", "u")])
def test_no_text_of_a_table_forges_a_row_for_any_reader(tmp_path_factory, header, rows):
    path, names = tmp_path_factory.getbasetemp() / "forged.csv", ["row", "member", f"y{header}z"]
    with open(path, "w", newline="", encoding="utf-8") as file:
        write = LineWriter(file, names)
        for row in rows:
            write(dict(zip(names, row, strict=True)))
    with open(path, newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == [names, *map(list, rows)]
    frame = pd.read_csv(path, dtype=str, keep_default_na=False, skip_blank_lines=False)
    assert frame.to_numpy().tolist() == [*map(list, rows)]
    assert [tuple(row.values()) for row, _ in Source(str(path)).rows()] == rows


def test_a_forecast_is_printed_again_by_a_run_that_has_ended(folder, capsys):
    quiet(config_for(target="y", horizon=2, ignore=("c",)), folder / "run")
    *_, last = csv.DictReader((folder / "p.csv").read_text().splitlines())
    assert cli.main(["resume", "run", "--forecast"]) == 0
    printed = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["ahead"] for row in printed] == [*"12"]
    for row in printed:
        for end in ("", "_low", "_high"):
            value = float(last[f"y+{row['ahead']}{end}"])
            assert float(row[f"y{end}"]) == float(f"{value:.6g}") and row["row"] == last["row"]


def raising(error):
    """Return a function that raises an error, whatever it gets."""

    def function(*_, **__):
        raise error

    return function


def refusal(folder, capsys, words):
    """Return the message that refuses a command, which must leave all files as they are."""

    def content():
        files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
        return {path: path.read_bytes() for path in files}

    before = content()
    capsys.readouterr()
    assert cli.main(words.split()) in (1, 2)
    assert content() == before
    (line,) = capsys.readouterr().err.splitlines()
    return line


OTHERS = {
    "deleted": (lambda path, kept, folder: None, "is cut"),
    "shortened": (lambda path, kept, folder: path.write_bytes(kept.read_bytes()[:99]), "is cut"),
    "overwritten in place": (
        lambda path, kept, folder: (kept.rename(path), path.write_text("mine\n" * 999)),
        "was changed",
    ),
    "the record": (
        lambda path, kept, folder: path.hardlink_to(folder / "run/metrics.jsonl"),
        "is cut|was changed",
    ),
}


@pytest.mark.parametrize("name", ["p.csv", "p.jsonl"])
def test_a_file_that_is_not_the_one_of_the_checkpoint_is_never_written(folder, capsys, name):
    """Put other files where the run's own was; with its own back, the run goes on."""
    config = dataclasses.replace(config_for(name), checkpoint_every=7)
    path, kept, whole = folder / name, folder / f"kept.{name}", folder / "whole"
    quiet(config, folder / "other")
    path.rename(whole)
    kill_while_writing(config, folder / "run", 30)
    for what, (put, message) in OTHERS.items():
        path.rename(kept)
        begun = kept.read_bytes()
        put(path, kept, folder)
        line = refusal(folder, capsys, "resume run")
        assert re.search(f"{name} ({message})", line), f"{what}: {line}"
        path.unlink(missing_ok=True)
        path.write_bytes(begun)
    quiet(config, folder / "run", resume=True)
    assert path.read_bytes() == whole.read_bytes()


def test_before_its_first_checkpoint_a_run_goes_on_with_a_file_without_rows_alone(folder, capsys):
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(follow.Program, "save", raising(Killed()))
        quiet(config_for(), folder / "run")
    header = (folder / "p.csv").read_text()
    (folder / "p.csv").write_text("mine\n")
    assert "p.csv exists already; move it" in refusal(folder, capsys, "resume run")
    (folder / "p.csv").write_text(header[:-1])
    quiet(config_for(), folder / "run", resume=True)
    assert len((folder / "p.csv").read_text().splitlines()) == 1 + ROWS


PLACES = {
    "mine.csv": "exists already",
    "a.csv": "exists already",
    "link.csv": "exists already",
    "run/metrics.jsonl": "is in the run directory",
    "linked/p.csv": "is in the run directory",
    "none/p.csv": "there is no folder none",
}


def test_a_refused_beginning_leaves_nothing(folder, capsys):
    """Files of others, of the run itself, links to them."""
    (folder / "mine.csv").write_text("mine\n")
    (folder / "link.csv").symlink_to("a.csv")
    (folder / "linked").symlink_to("run")
    for name, message in PLACES.items():
        line = refusal(folder, capsys, f"{WORDS} --run-dir run --predictions {name}")
        assert name in line and message in line and not (folder / "run").exists(), line


def test_the_table_is_the_same_in_a_file_on_standard_output_and_for_more_rows(folder, capsys):
    words = f"{WORDS} --run-dir"
    assert cli.main(f"{words} one --predictions -".split()) == 0
    out, err = capsys.readouterr()
    assert "inputs, numbers: x" in " ".join(err.split()) and "accuracy" in err  # the key is none
    assert cli.main(f"{words} two --predictions p.csv".split()) == 0
    assert out == (folder / "p.csv").read_text()
    capsys.readouterr()
    assert cli.main("predict two a.csv --rows 3".split()) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header == "row,key,c,probability" and len(rows) == 3
    assert out.splitlines()[0] == f"{header},surprise"  # without a label learned, there is none
    assert cli.main("predict two a.csv --rows 3 --out q.jsonl".split()) == 0
    found = [json.loads(line) for line in (folder / "q.jsonl").read_text().splitlines()]
    assert [row["key"] for row in found] == ["k0", "k1", "k2"]
    assert {*found[0]["probabilities"]} == {*"uv"}


@pytest.mark.usefixtures("twenty_rows_decide")
def test_one_process_answers_a_row_at_once_and_learns_those_with_labels(folder, pipe):
    """Each row without a label is written when the one before it was answered."""
    found = []

    def answer(row):
        found.append(row)
        if len(found) == 24:
            pipe.close()
        elif len(found) >= 20:
            pipe.write(f"k{len(found)},1,\n".encode())

    pipe.write(b"key,x,y\n" + b"".join(b"k%d,1,%d\n" % (i, i % 2) for i in range(20)))
    config = dataclasses.replace(config_for(None, target="y", ignore=(), format="csv"), source="-")
    assert quiet(config, folder / "run", on_prediction=answer).rows == 24
    assert [row["key"] for row in found] == [f"k{i}" for i in range(24)]
    assert len({str(row["probabilities"]) for row in found[21:]}) == 1  # nothing more is learned


def with_lost_reader(monkeypatch, words):
    """Return the exit code of a command whose reader of standard output has left."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as file, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", file)
        return cli.main(words.split())


def test_a_reader_that_leaves_ends_every_command_and_a_run_goes_on(folder, capsys, monkeypatch):
    stream = f"{WORDS} --predictions - --run-dir"
    assert cli.main(f"{stream} whole".split()) == 0
    whole = capsys.readouterr().out
    assert with_lost_reader(monkeypatch, f"{stream} run") == 141
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("foretrace: stopped") and line.endswith("foretrace resume run")
    assert cli.main(["resume", "run"]) == 0
    assert capsys.readouterr().out == whole
    assert_same_state(folder / "run", folder / "whole")
    for words in ("report run", "check run", "predict run a.csv", "-h"):
        assert with_lost_reader(monkeypatch, words) == 141
        assert capsys.readouterr().err == ""


def test_an_alarm_finds_a_class_by_its_text_and_one_that_never_came_is_told(tmp_path, capsys):
    is_high = [i % 3 == 0 for i in range(60)]
    frame, options = pd.DataFrame({"x": is_high, "y": is_high}), {"target": "y", "model": FEW}
    alarms = {"alarm": ("True=0.4", "typo=0.5")}
    result = run(frame, tmp_path / "run", show_progress=True, **options, **alarms)
    # The first row had no answer, as no class was known.
    assert [line["labels"] for line in result.classes[-2:]] == [19, 0]
    said = capsys.readouterr().err
    assert "is 'typo', which has an alarm" in said and "is 'True', which" not in said


def test_a_forecast_from_an_older_label_says_which(folder, capsys):
    """The last rows of a file are in no checkpoint, as their known values are not all there."""
    options = {"target": "y", "horizon": 3, "known": ("x",), "ignore": ("c",)}
    quiet(config_for(None, **options), folder / "run")
    header, *rows = (folder / "a.csv").read_text().splitlines()
    (folder / "next.csv").write_text("\n".join([header, "k60,0,,u", "k61,1,,u"]))
    (folder / "more.csv").write_text("\n".join([header, *rows[57:], "k60,0,,u"]))
    said = (
        "next.csv, row 1 has no value of 'y', and is predicted as the row after row 57 of the run"
        ", from the labels up to there. The run went on to row 60, and the 3 rows between are in "
    )
    for source, count in (("next.csv", 1), ("more.csv", 0)):
        capsys.readouterr()
        assert cli.main(["predict", "run", source]) == 0
        out, err = capsys.readouterr()
        assert err.count("has no value of 'y'") == err.count(said) == count, err
        assert len(out.splitlines()) > 2


def test_before_a_number_is_known_there_is_no_prediction_and_no_score(tmp_path):
    rows = [(i, 30_000 + i / 4 if i > 2 else "") for i in range(60)]
    path = tmp_path / "late.csv"
    path.write_text("x,y\n" + "".join(f"{x},{y}\n" for x, y in rows))
    config = StreamConfig(str(path), "y", model=FEW, predictions=str(tmp_path / "p.csv"))
    scores = run(config, tmp_path / "run").scores
    with open(tmp_path / "p.csv", newline="") as file:
        found = list(csv.DictReader(file))
    shown = [one["y"] for one in found]
    assert shown[:4] == [""] * 4 and all(float(y) > 20_000 for y in shown[4:])
    assert 0 < scores["mae"] < 10 and 0 < scores["mean_mae"] < 10


def test_an_alarm_names_a_class_of_json_as_json_does():
    target = ClassTarget(2, alarms=("true", "False"))
    assert [target.read(value) for value in (False, True)] == [0.0, 1.0]
    assert target.watched == [1, 0]


def test_a_frame_may_grow_by_values_that_make_floats_of_its_integers():
    frame = pd.DataFrame({"a": [1, 2, 3], "y": [4, 5, 6]})
    grown = pd.DataFrame({"a": [1, 2, 3, None], "y": [4.0, 5.0, 6.0, 7.5]})
    *_, (_, position) = FrameSource(frame).rows()
    ((row, _),) = FrameSource(grown).rows(position)
    assert row["y"] == 7.5
    with pytest.raises(SourceError, match="not those that were read"):
        list(FrameSource(grown + 1).rows(position))


def test_warnings_of_a_run_without_progress_are_logged(tmp_path, caplog):
    frame = pd.DataFrame({"a": [1.0, 2.0] * 20, "y": ["u", "v"] * 20})
    run(frame, tmp_path / "run", target="y", model=FEW, coverage=0.8)
    assert "coverage" in caplog.text
