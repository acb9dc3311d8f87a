"""Predictions that leave a run while it learns: every row once, in order, after any kill."""

import csv
import dataclasses
import json
import os
import re
import subprocess
import sys
import threading
import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from streams import FEW, Killed, kill_while_writing, quiet

from foretrace._rows.source import Source
from foretrace._runs import session
from foretrace._runs.directory import RunError
from foretrace._runs.metrics import read_metrics
from foretrace.cli import _main as cli
from foretrace.stream import _loop
from foretrace.stream._config import StreamConfig
from foretrace.stream._predictions import LineWriter, Outlet
from foretrace.stream._run import follow
from foretrace.stream._run_from_python import run as run_stream

ROWS = 60
RUNS = {
    "a class": {"target": "c"},
    "a number, late": {"target": "y", "task": "regression", "delay": 3},
    "next numbers of members": {"target": "y", "horizon": 2, "member": "c"},
    "a number, in chunks": {"target": "y", "task": "regression", "chunk": 8},
}


def value(i):
    return i * i % 5 + i % 2 / 2


def write_source(path, rows=ROWS, *, complete=True):
    lines = ["key,x,y,c", *(f"k{i},{i % 3},{value(i)},{'uvw'[i * i % 3]}" for i in range(rows))]
    path.write_text("\n".join(lines) + "\n" * complete)
    return str(path)


def config_for(folder, name="p.csv", **options):
    options = {"id": "key", "model": FEW, "look_ahead": 20, "log_every": 10} | options
    return StreamConfig(str(folder / "a.csv"), predictions=str(folder / name), **options)


@pytest.fixture(scope="module", params=RUNS)
def whole(request, tmp_path_factory):
    """Return options of a run, and the predictions of the undisturbed one as CSV and as JSON."""
    folder, options = tmp_path_factory.mktemp("whole"), RUNS[request.param]
    write_source(folder / "a.csv", complete=False)
    for name in ("p.csv", "p.jsonl"):
        quiet(config_for(folder, name, **options), folder / f"run of {name}")
    return options, (folder / "p.csv").read_text(), (folder / "p.jsonl").read_text()


def test_every_row_has_one_line_with_its_key(whole):
    options, text, json_text = whole
    header, *rows = csv.reader(text.splitlines())
    found = [json.loads(line) for line in json_text.splitlines()]
    member = [options["member"]] if "member" in options else []
    assert header[: 2 + len(member)] == ["row", *member, "key"]
    assert [row[0] for row in rows] == [str(i + 1) for i in range(ROWS)]
    assert [row[len(member) + 1] for row in rows] == [f"k{i}" for i in range(ROWS)]
    for row, line in zip(rows, found, strict=True):
        shares = line.pop("probabilities", None)
        assert row == ["" if one is None else str(one) for one in line.values()]
        if shares:
            assert sum(shares.values()) == pytest.approx(1)
            assert line["probability"] == max(shares.values()) == shares[line["c"]]


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


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize(
    ("options", "read"), [({}, None), ({"delay": 3}, 40), ({"delay": 25, "chunk": 4}, 58)]
)
def test_all_scores_are_of_the_rows_that_have_an_answer_and_a_label(tmp_path, task, options, read):
    """Count again from the predictions: mixture, experts and baselines, with missing labels."""
    ys = ["" if i % 7 == 2 else "2" if i % 5 == 1 else str(i // 40) for i in range(ROWS)]
    (tmp_path / "a.csv").write_text("".join(["key,y\n", *(f"{i},{y}\n" for i, y in enumerate(ys))]))
    found = []
    config = config_for(tmp_path, target="y", task=task, **options)
    result = run_stream(config, tmp_path / "run", rows=read, on_prediction=found.append)
    late, counted = config.delay, []
    for i, (row, y) in enumerate(zip(found, ys, strict=False)):
        seen = [known for known in ys[: max(i - late, 0)] if known]
        assert task == "regression" or (row["y"] is None) == (not seen)
        if y and row["y"] is not None and i + late < len(found):
            last = seen[-1] if seen else "0"
            most = max(dict.fromkeys(seen), key=seen.count) if seen else None
            mean = np.mean([*map(float, seen)] or [0.0])
            held = row.get("y_low", 0) <= float(y) <= row.get("y_high", 0)
            counted.append((row["y"], y, last, most, mean, held))
    assert read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]["scored"] == len(counted)
    if task == "classification":
        mine, last, most = (np.mean([row[k] == row[1] for row in counted]) for k in (0, 2, 3))
        both = [("accuracy", mine), ("no_change_accuracy", last), ("majority_accuracy", most)]
        same = {"last": last}
    else:
        table = np.array(counted)[:, [0, 1, 2, 4]].astype(float)
        mine, last, mean = np.abs(table[:, [0, 2, 3]] - table[:, [1]]).mean(axis=0)
        both = [("mae", mine), ("no_change_mae", last), ("mean_mae", mean)]
        same = {"last": last, "mean": mean}
    for name, expected in both:
        assert result.scores[name] == pytest.approx(expected), name
    for name, expected in same.items():
        assert result.experts[name] == pytest.approx(expected), name
    if task == "regression":
        assert result.scores["coverage"] == pytest.approx(np.mean([row[5] for row in counted]))


def test_a_forecast_is_for_the_rows_behind_its_row(tmp_path, capsys):
    write_source(tmp_path / "a.csv")
    config = config_for(tmp_path, target="y", horizon=3)
    result = run_stream(config, tmp_path / "run")
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    errors = [
        abs(float(rows[i][f"y+{ahead}"]) - value(i + ahead))
        for i in range(ROWS - 3)
        for ahead in (1, 2, 3)
    ]
    assert np.mean(errors) == pytest.approx(result.scores["mae"], rel=1e-12)
    last = [float(rows[-1][f"y+{ahead}"]) for ahead in (1, 2, 3)]
    assert [row["y"] for row in result.forecast] == last
    # A run that has ended says it again.
    assert cli.main(["resume", str(tmp_path / "run"), "--forecast"]) == 0
    printed = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [(row["ahead"], float(row["y"])) for row in printed] == [*zip("123", last, strict=True)]
    for row in printed:
        for end in ("low", "high"):
            assert float(row[f"y_{end}"]) == float(rows[-1][f"y+{row['ahead']}_{end}"])


@given(
    stops=st.lists(st.integers(0, 12), min_size=1, max_size=3),
    every=st.sampled_from(
        [{"checkpoint_every": 1}, {"checkpoint_every": 7}, {"checkpoint_seconds": 1e-9}, {}]
    ),
    error=st.sampled_from([Killed, OSError]),
    is_csv=st.booleans(),
)
def test_killed_in_any_write_each_row_is_there_once(
    whole, tmp_path_factory, stops, every, error, is_csv
):
    """Also if the disk is full."""
    options, *texts = whole
    folder = tmp_path_factory.mktemp("killed")
    write_source(folder / "a.csv", complete=False)
    name = "p.csv" if is_csv else "p.jsonl"
    config = config_for(folder, name, **every, **options)
    for i, at in enumerate(stops):
        kill_while_writing(config, folder / "run", at, error, resume=i > 0)
    quiet(config, folder / "run", resume=True)
    assert (folder / name).read_text() == texts[0 if is_csv else 1]


def bytes_of(folder):
    """Return each file's bytes, but for the lock of a run, which holds none."""
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def refusal(folder, capsys, *words):
    """Return the message that refuses a command, which must leave all files as they are."""
    before = bytes_of(folder)
    capsys.readouterr()
    assert cli.main([*map(str, words)]) in (1, 2)
    assert bytes_of(folder) == before
    (line,) = capsys.readouterr().err.splitlines()
    return line


STAGES = {"before its first checkpoint": None, "before a row": 1000, "behind a checkpoint": 7}
OTHERS = {
    "deleted": (lambda path, kept, folder: None, "is missing"),
    "shortened": (
        lambda path, kept, folder: path.write_bytes(kept.read_bytes()[:-30]),
        "is cut|another file|missing",
    ),
    "one's own": (lambda path, kept, folder: path.write_text("mine\n" * 999), "changed|another"),
    "overwritten in place": (
        lambda path, kept, folder: (kept.rename(path), path.write_text("mine\n" * 999)),
        "was changed",
    ),
    "of another run": (
        lambda path, kept, folder: path.write_bytes((folder / "kept by other").read_bytes()),
        "another file|was changed",
    ),
    "the same and more": (
        lambda path, kept, folder: path.write_bytes(kept.read_bytes() + b"more\n"),
        "another file",
    ),
    "the record": (lambda path, kept, folder: path.hardlink_to(folder / "run/metrics.jsonl"), "is"),
    "a link to it": (lambda path, kept, folder: path.symlink_to("run/metrics.jsonl"), "is"),
    "the source": (lambda path, kept, folder: path.hardlink_to(folder / "a.csv"), "is the file"),
}


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("name", ["p.csv", "p.jsonl"])
def test_a_file_that_the_run_has_not_begun_is_never_written(tmp_path, capsys, stage, name):
    """Put every other file where the run's own was; with its own back, the run goes on."""
    write_source(tmp_path / "a.csv")
    config, every = config_for(tmp_path, name, target="c"), STAGES[stage]
    path, kept = tmp_path / name, tmp_path / f"kept.{name}"
    quiet(config, tmp_path / "other")
    path.rename(tmp_path / "kept by other")
    if every is None:
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
            patch.setattr(_loop.StreamLoop, "_save", lambda self: (_ for _ in ()).throw(Killed))
            quiet(config, tmp_path / "run")
    else:
        config = dataclasses.replace(config, checkpoint_every=every)
        kill_while_writing(config, tmp_path / "run", 30)
    begun = path.read_bytes()
    for what, (put, message) in OTHERS.items():
        path.rename(kept)
        put(path, kept, tmp_path)
        line = refusal(tmp_path, capsys, "resume", tmp_path / "run")
        assert re.search(f"{name}.* ({message})", line), f"{what}: {line}"
        if kept.exists():
            path.unlink(missing_ok=True)
            kept.rename(path)
        path.write_bytes(begun)
    quiet(config, tmp_path / "run", resume=True)
    assert path.read_bytes() == (tmp_path / "kept by other").read_bytes()


def test_a_copy_of_the_predictions_goes_on_if_nothing_of_it_is_cut_off(tmp_path):
    write_source(tmp_path / "a.csv")
    config = config_for(tmp_path, target="c")
    quiet(config, tmp_path / "run", rows=20)
    text = (tmp_path / "p.csv").read_text()
    (tmp_path / "p.csv").unlink()
    (tmp_path / "p.csv").write_text(text)
    quiet(config, tmp_path / "run", resume=True)
    assert (tmp_path / "p.csv").read_text().startswith(text)
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 1 + ROWS


def test_a_refused_beginning_leaves_nothing(tmp_path, capsys, monkeypatch):
    """Files of others, of the run itself, links to them; a run that begins at the same moment."""
    write_source(tmp_path / "a.csv")
    (tmp_path / "mine.csv").write_text("mine\n")
    (tmp_path / "link.csv").symlink_to("a.csv")
    (tmp_path / "linked").symlink_to("run")
    words = [tmp_path / "a.csv", "--target", "c", "--experts", "baselines", "--look-ahead", "20"]
    for name, message in {
        "mine.csv": "exists already",
        "a.csv": "is the file",
        "link.csv": "is the file",
        "run/metrics.jsonl": "is in the run directory",
        "run/deeper/p.csv": "is in the run directory",
        "linked/p.csv": "is in the run directory",
        "none/p.csv": "No such file or directory",
    }.items():
        more = ["--run-dir", tmp_path / "run", "--predictions", tmp_path / name]
        line = refusal(tmp_path, capsys, "stream", *words, *more)
        assert name in line and message in line, line
        assert not (tmp_path / "run").exists()

    def claimed_by_another(self):
        (tmp_path / "p.csv").write_text("theirs\n")
        return claimed(self)

    config, claimed = config_for(tmp_path, target="c"), Outlet.claimed
    monkeypatch.setattr(Outlet, "claimed", claimed_by_another)
    with pytest.raises(FileExistsError, match="p.csv"):
        quiet(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    monkeypatch.undo()
    (tmp_path / "p.csv").unlink()
    monkeypatch.setattr(session, "create", lambda *_, **__: (_ for _ in ()).throw(RunError("no")))
    with pytest.raises(RunError, match="no"):
        quiet(config, tmp_path / "run")
    assert not (tmp_path / "p.csv").exists()


def test_the_key_is_no_input(tmp_path, capsys):
    write_source(tmp_path / "a.csv")
    follow(config_for(tmp_path, target="y", task="regression"), tmp_path / "run")
    err = " ".join(capsys.readouterr().err.split())
    assert "inputs, numbers: x" in err and "inputs, categories: c input" in err


def test_standard_output_has_the_table_alone(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_source(tmp_path / "a.csv")
    words = "stream a.csv --target c --id key --experts baselines row --look-ahead 20"
    assert cli.main([*words.split(), "--run-dir", "one", "--predictions", "-"]) == 0
    out, err = capsys.readouterr()
    assert cli.main([*words.split(), "--run-dir", "two", "--predictions", "p.csv"]) == 0
    assert out == (tmp_path / "p.csv").read_text() and "accuracy" in err


def test_predictions_of_more_rows_are_the_same_table(tmp_path, capsys):
    write_source(tmp_path / "a.csv")
    quiet(config_for(tmp_path, target="c"), tmp_path / "run")
    words = ["predict", str(tmp_path / "run"), str(tmp_path / "a.csv"), "--rows", "3"]
    assert cli.main(words) == 0
    header = (tmp_path / "p.csv").read_text().splitlines()[0]
    assert capsys.readouterr().out.splitlines()[0] == header == "row,key,c,probability"
    assert cli.main([*words, "--out", str(tmp_path / "q.jsonl")]) == 0
    found = [json.loads(line) for line in (tmp_path / "q.jsonl").read_text().splitlines()]
    assert [row["key"] for row in found] == ["k0", "k1", "k2"]
    assert {*found[0]["probabilities"]} == {*"uv"}


def test_one_process_answers_a_row_at_once_and_learns_those_with_labels(tmp_path, monkeypatch):
    into, out = os.pipe()
    found, done = [], threading.Event()

    def producer():
        with os.fdopen(out, "w", buffering=1) as file:
            file.write("key,y\n" + "".join(f"k{i},{i % 2}\n" for i in range(20)))
            for i in range(20, 24):  # each waits for the answer to the one before
                while len(found) < i:
                    time.sleep(0.01)
                file.write(f"k{i},\n")
        done.set()

    config = dataclasses.replace(
        config_for(tmp_path, target="y"), source="-", format="csv", predictions=None
    )
    with os.fdopen(into) as file:
        monkeypatch.setattr(sys, "stdin", file)
        thread = threading.Thread(target=producer, daemon=True)
        thread.start()
        result = run_stream(config, tmp_path / "run", on_prediction=found.append)
    assert done.wait(10) and result.rows == 24
    assert [row["key"] for row in found] == [f"k{i}" for i in range(24)]
    assert len({str(row["probabilities"]) for row in found[21:]}) == 1  # nothing more is learned


def with_lost_reader(monkeypatch, *words):
    """Return the exit code of a command whose reader of standard output has left."""
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as file, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", file)
        return cli.main([*map(str, words)])


def test_a_reader_that_leaves_ends_every_command_and_a_run_goes_on(tmp_path, capsys, monkeypatch):
    write_source(tmp_path / "a.csv")
    words = [tmp_path / "a.csv", "--target", "c", "--experts", "baselines", "--look-ahead", "20"]
    stream, run = ["stream", *words, "--predictions", "-", "--run-dir"], tmp_path / "run"
    assert cli.main([*map(str, stream), str(tmp_path / "whole")]) == 0
    whole = capsys.readouterr().out
    assert with_lost_reader(monkeypatch, *stream, run) == 141
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("foretrace: stopped") and line.endswith(f"foretrace resume {run}")
    assert cli.main(line.split("foretrace ")[1].split()) == 0
    assert capsys.readouterr().out == whole
    files = [load_file(folder / "checkpoint.safetensors") for folder in (run, tmp_path / "whole")]
    one, two = ([value for name, value in file.items() if "sums" in name] for file in files)
    assert len(one) == 1 and one[0].any() and np.array_equal(one[0], two[0])
    for others in (["report", run], ["check", run], ["predict", run, tmp_path / "a.csv"], ["-h"]):
        assert with_lost_reader(monkeypatch, *others) == 141
        assert capsys.readouterr().err == ""


@pytest.mark.program
def test_a_reader_may_leave_after_some_rows(tmp_path):
    write_source(tmp_path / "a.csv", 3000)
    words = "stream a.csv --target c --experts baselines --predictions - --run-dir run"
    command = [sys.executable, "-m", "foretrace", *words.split()]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=tmp_path, **pipes) as process:
        lines = [process.stdout.readline() for _ in range(3)]
        process.stdout.close()
        err = process.stderr.read().decode()
        assert process.wait() == 141 and "foretrace resume run" in err.splitlines()[-1], err
    assert lines[0] == b"row,c,probability\n" and lines[2].startswith(b"2,")
