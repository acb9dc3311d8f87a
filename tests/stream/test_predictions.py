"""Predictions that leave a run while it learns: every row once, in order, after any kill."""

import csv
import dataclasses
import json
import os
import re
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.numpy import load_file
from streams import FEW, Killed, kill_while_writing, quiet
from tiers import fast

from foretrace._rows.source import Source
from foretrace._runs import session
from foretrace._runs.directory import RunError
from foretrace.cli import _main as cli
from foretrace.stream._config import StreamConfig
from foretrace.stream._predictions import LineWriter, Outlet
from foretrace.stream._run_from_python import run as run_stream

ROWS = 60


def write_source(path):
    lines = ["key,x,y,c"]
    for i in range(ROWS):
        lines.append(f"k{i},{i % 3},{i * i % 5 + i % 2 / 2},{'uvw'[i * i % 3]}")
    path.write_text("\n".join(lines) + "\n")


def config_for(folder, name="p.csv", **options):
    options = {"id": "key", "model": FEW, "look_ahead": 20, "log_every": 10} | options
    return StreamConfig(str(folder / "a.csv"), predictions=str(folder / name), **options)


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


def test_a_forecast_is_printed_again_by_a_run_that_has_ended(tmp_path, capsys):
    write_source(tmp_path / "a.csv")
    run_stream(config_for(tmp_path, target="y", horizon=3), tmp_path / "run")
    *_, last = csv.DictReader((tmp_path / "p.csv").read_text().splitlines())
    assert cli.main(["resume", str(tmp_path / "run"), "--forecast"]) == 0
    printed = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["ahead"] for row in printed] == [*"123"]
    for row in printed:
        for end in ("", "_low", "_high"):
            assert float(row[f"y{end}"]) == float(last[f"y+{row['ahead']}{end}"])


def raising(error):
    """Return a function that raises an error, whatever it gets."""

    def function(*_, **__):
        raise error

    return function


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


NAMES = ("p.csv", "p.jsonl", "p.csv", "p.jsonl")
CASES = [*zip(STAGES, NAMES[:3], strict=True), *zip(STAGES, NAMES[1:], strict=True)]


@pytest.mark.parametrize(("stage", "name"), fast(CASES, 3))
def test_a_file_that_the_run_has_not_begun_is_never_written(tmp_path, capsys, stage, name):
    """Put every other file where the run's own was; with its own back, the run goes on."""
    write_source(tmp_path / "a.csv")
    config, every = config_for(tmp_path, name, target="c"), STAGES[stage]
    path, kept = tmp_path / name, tmp_path / f"kept.{name}"
    quiet(config, tmp_path / "other")
    path.rename(tmp_path / "kept by other")
    if every is None:
        with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
            patch.setattr(session.Session, "save", raising(Killed()))
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
    monkeypatch.setattr(session, "create", raising(RunError("no")))
    with pytest.raises(RunError, match="no"):
        quiet(config, tmp_path / "run")
    assert not (tmp_path / "p.csv").exists()


def test_the_table_is_the_same_in_a_file_on_standard_output_and_for_more_rows(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    write_source(tmp_path / "a.csv")
    words = "stream a.csv --target c --id key --experts baselines row --look-ahead 20"
    assert cli.main([*words.split(), "--run-dir", "one", "--predictions", "-"]) == 0
    out, err = capsys.readouterr()
    assert "inputs, numbers: x" in " ".join(err.split()) and "accuracy" in err  # the key is none
    assert cli.main([*words.split(), "--run-dir", "two", "--predictions", "p.csv"]) == 0
    assert out == (tmp_path / "p.csv").read_text()
    capsys.readouterr()
    words = "predict two a.csv --rows 3"
    assert cli.main(words.split()) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header == out.splitlines()[0] == "row,key,c,probability" and len(rows) == 3
    assert cli.main([*words.split(), "--out", "q.jsonl"]) == 0
    found = [json.loads(line) for line in (tmp_path / "q.jsonl").read_text().splitlines()]
    assert [row["key"] for row in found] == ["k0", "k1", "k2"]
    assert {*found[0]["probabilities"]} == {*"uv"}


def test_one_process_answers_a_row_at_once_and_learns_those_with_labels(tmp_path, pipe):
    """Each row without a label is written when the one before it was answered."""
    found = []

    def answer(row):
        found.append(row)
        if len(found) == 24:
            pipe.close()
        elif len(found) >= 20:
            pipe.write(f"k{len(found)},\n".encode())

    pipe.write(b"key,y\n" + b"".join(b"k%d,%d\n" % (i, i % 2) for i in range(20)))
    config = config_for(tmp_path, target="y", format="csv")
    config = dataclasses.replace(config, source="-", predictions=None)
    assert run_stream(config, tmp_path / "run", on_prediction=answer).rows == 24
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
