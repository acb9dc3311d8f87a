"""Lines of a pipe that are written before they are learned: a pipe that resumes as a file does."""

import dataclasses
import os
import signal
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from streams import LAGS, OFTEN, assert_same_run, kill_behind, quiet, rows_in

from foretrace.stream.read import journal as journals
from foretrace.stream.read.journal import Journal
from foretrace.stream.runs.config import StreamConfig

ROWS = 200


@pytest.fixture
def lines():
    x = np.random.default_rng(0).normal(size=ROWS)
    return ["x,y\n", *(f"{one:.6f},{2 * one + 1:.6f}\n" for one in x)]


@pytest.fixture
def feed(tmp_path, monkeypatch):
    """Return a function that follows lines on standard input."""

    def follow(config, lines, does=quiet, *arguments, **options):
        (tmp_path / "in").write_text("".join(lines))
        with open(tmp_path / "in") as file, monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", file)
            return does(config, *arguments, **options)

    return follow


def config(folder, source="-", **options):
    options |= {"target": "y", "format": "csv", "model": LAGS} | OFTEN
    if source == "-":
        options |= {"journal": str(folder / "j.csv")}
    return StreamConfig(str(source), **options)


def test_a_killed_pipe_goes_on_exactly(tmp_path, feed, lines, monkeypatch):
    """The rest comes with another header, and the last line was torn."""
    piped, run = config(tmp_path), tmp_path / "run"
    feed(piped, lines[:121], kill_behind, run, 90)
    with open(piped.journal, "a") as file:
        file.write("0.5,")
    feed(piped, [lines[0], *lines[121:]], quiet, run, resume=True)
    (tmp_path / "a.csv").write_text("".join(lines))
    monkeypatch.setattr(StreamConfig, "chunk", 1)  # another program has sums in another order
    quiet(config(tmp_path, tmp_path / "a.csv"), tmp_path / "whole")
    assert (tmp_path / "j.csv").read_text() == "".join(lines)
    assert rows_in(run) == ROWS
    assert_same_run(run, tmp_path / "whole")


def test_a_pipe_with_another_header_and_wrong_settings_are_refused(tmp_path, feed, lines):
    feed(config(tmp_path), lines, quiet, tmp_path / "run")
    with pytest.raises(ValueError, match="header.*journal"):
        feed(config(tmp_path), ["a,b\n", "1,2\n"], quiet, tmp_path / "run", resume=True)
    with pytest.raises(ValueError, match="journal=.*standard input"):
        StreamConfig("a.csv", journal="j.csv", target="y")
    with pytest.raises(ValueError, match="text has no lines"):
        feed(StreamConfig("-", format="text", journal="j.txt"), "abc", quiet, tmp_path / "text")


def test_the_first_row_of_a_live_pipe_is_predicted_at_once(tmp_path, feed, lines):
    """The kinds of its columns are those of a file like it."""
    (tmp_path / "like.csv").write_text("".join(lines[:50]))
    live, found = config(tmp_path, like=str(tmp_path / "like.csv")), []
    feed(live, lines[:2], quiet, tmp_path / "run", on_prediction=found.append)
    assert len(found) == 1 and rows_in(tmp_path / "run") == 1


def test_lines_are_on_the_disk_before_they_are_read_and_a_full_disk_leaves_no_part(
    tmp_path, monkeypatch
):
    batches, synced = iter([b"a\nb\n", b"c\n", b"d\n", b""]), []
    journal = Journal(tmp_path / "j", lambda journal: next(batches))
    monkeypatch.setattr(journals, "_sync", lambda number: synced.append(os.fstat(number).st_size))
    assert journal.readline(9) == b"a\n" and synced == [4]  # both lines by one call
    assert journal.readline(9) == b"b\n"

    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(journals, "_sync", full)
    with pytest.raises(OSError, match="No space"):
        journal.readline(9)
    assert (tmp_path / "j").read_bytes() == b"a\nb\n"
    monkeypatch.setattr(journals, "_sync", lambda number: None)
    assert (journal.readline(9), journal.readline(9)) == (b"d\n", b"")
    journal.close()


def test_lines_that_are_read_while_a_stop_is_asked_for_are_not_lost(
    tmp_path, monkeypatch, feed, lines
):
    blocks = iter([lines[:101], lines[101:151]])

    def read(size):
        block = next(blocks)
        if block[0] == lines[101]:
            signal.raise_signal(signal.SIGTERM)
        return "".join(block).encode()

    piped, run = config(tmp_path), tmp_path / "run"
    (tmp_path / "like.csv").write_text("".join(lines))
    piped = dataclasses.replace(piped, like=str(tmp_path / "like.csv"))
    with monkeypatch.context() as patch:
        raw = SimpleNamespace(read=read)
        patch.setattr(sys, "stdin", SimpleNamespace(buffer=SimpleNamespace(raw=raw)))
        assert quiet(piped, run).stopped
    assert rows_in(run) == 100
    assert (tmp_path / "j.csv").read_text() == "".join(lines[:151])
    feed(piped, [lines[0], *lines[151:]], quiet, run, resume=True)
    assert rows_in(run) == ROWS
