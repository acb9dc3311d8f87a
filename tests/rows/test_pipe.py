"""Standard input read by one process after another: no lost byte, no torn row."""

import gzip
import io
import os
import sys
import threading
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace._rows import pipe as pipes
from foretrace._rows.lines import SourceError
from foretrace._rows.pipe import Pipe
from foretrace._rows.source import Position, Source

DATA = b"x,y\n" + b"".join(b"%d,%d\n" % (i, i * i) for i in range(400))


@pytest.fixture
def stdin(monkeypatch):
    """Return the end of a pipe that is written to; standard input is the other end."""
    into, out = os.pipe()
    with os.fdopen(into, "rb") as file, os.fdopen(out, "wb", buffering=0) as writer:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file))
        yield writer


def take(rows, count):
    return [
        (row["x"], position.offset) for (row, position), _ in zip(rows, range(count), strict=False)
    ]


def test_what_was_read_ahead_is_handed_on(stdin):
    stdin.write(DATA[:3000])
    first = Source("-", "csv", hand_on=True)
    rows = take(first.rows(), 100)
    state = first.pipe.to_json(rows[-1][1], end=True)
    assert len(state["unread"]) > 500, "nothing was read ahead: the test shows nothing"
    stdin.write(DATA[3000:])
    stdin.close()
    then = Source("-", "csv", hand_on=True)
    assert then.pipe.restore(state, quotes=True) == []
    more = list(then.rows(columns=("x", "y")))
    assert [x for x, _ in rows] + [row["x"] for row, _ in more] == [str(i) for i in range(400)]


@pytest.mark.parametrize("same", [True, False])
def test_a_torn_row_is_read_only_where_its_rest_follows(stdin, monkeypatch, same):
    torn = DATA.index(b"250,") + 2  # in the middle of a number
    stdin.write(DATA[:torn])
    first = Source("-", "csv", hand_on=True)
    rows = take(first.rows(), 200)
    state = first.pipe.to_json(rows[-1][1], end=same)
    other = DATA[torn:] if same else b"x,y\n900,1\n"
    if not same:
        monkeypatch.setattr(pipes, "_identity", lambda: [0, 1])
    stdin.write(other)
    stdin.close()
    then = Source("-", "csv", hand_on=True)
    lost = then.pipe.restore(state, quotes=True)
    more = [row["x"] for row, _ in then.rows(columns=("x", "y"))]
    assert more == [str(i) for i in (range(200, 400) if same else [*range(200, 250), 900])]
    assert lost == (
        []
        if same
        else ["the incomplete row at the end of the earlier input, of 2 bytes, is dropped"]
    )


def test_a_killed_process_loses_rows_and_says_so(stdin):
    stdin.write(DATA[:3000])
    first = Source("-", "csv", hand_on=True)
    rows = take(first.rows(), 100)
    state = first.pipe.to_json(rows[-1][1], end=False)
    # It goes on for some bytes, and is killed in the middle of a row.
    torn = DATA.index(b"370,") + 1
    stdin.write(DATA[3000:torn])
    os.read(sys.stdin.fileno(), 10**6)
    stdin.write(DATA[torn:])
    stdin.close()
    then = Source("-", "csv", hand_on=True)
    lost = then.pipe.restore(state, quotes=True)
    more = [row["x"] for row, _ in then.rows(columns=("x", "y"))]
    whole = DATA[:3000].count(b"\n") - 1
    assert more == [str(i) for i in (*range(100, whole), *range(371, 400))]
    assert len(lost) == 2 and "the earlier process was killed" in lost[1]


def test_a_redirected_file_is_put_back(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_bytes(DATA)
    with open(tmp_path / "a.csv") as file:
        monkeypatch.setattr(sys, "stdin", file)
        first = Source("-", "csv", hand_on=True)
        rows = take(first.rows(), 100)
        state = first.pipe.to_json(rows[-1][1], end=True)
        assert state["unread"] == ""
        then = Source("-", "csv", hand_on=True)
        assert then.pipe.restore(state, quotes=True) == []
        assert [row["x"] for row, _ in then.rows(columns=("x", "y"))] == [
            str(i) for i in range(100, 400)
        ]


def test_a_compressed_pipe_says_that_it_cannot_go_on(stdin):
    stdin.write(gzip.compress(DATA))
    stdin.close()
    first = Source("-", "csv", hand_on=True)
    assert len(take(first.rows(), 100)) == 100
    state = first.pipe.to_json(500, end=True)
    assert (
        state["unread"] == ""
        and "compressed" in Source("-", "csv").pipe.restore(state, quotes=True)[0]
    )


def test_a_closed_standard_input_is_said(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(SourceError, match="standard input cannot be read: it is closed"):
        next(Source("-", "csv").rows())


def test_what_is_released_is_forgotten(stdin):
    source = Source("-", "csv", hand_on=True)
    rows = source.rows()
    line = b"1," + b"2" * 997 + b"\n"
    stdin.write(b"x,y\n")
    for _ in range(300):
        stdin.write(line)
        _, position = next(rows)
        source.pipe.release(position.offset)
        assert len(source.pipe._held) <= 2**16 + 1000
    assert source.pipe.to_json(position.offset, end=True)["unread"] == ""


BAD = b"1," + b"2" * 5000 + b",3\n"
BLANK = {"csv": b"\n", "jsonl": b" " * 5000 + b"\n"}
LINES = {"csv": b"%d,1\n", "jsonl": b'{"x": "%d", "y": 1}\n'}


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_rows_that_are_skipped_are_not_kept_until_a_good_one_comes(stdin, monkeypatch, format):
    bad, blank, line = (
        {"csv": BAD, "jsonl": b"[" * 5000 + b"\n"}[format],
        BLANK[format],
        LINES[format],
    )
    source, held = Source("-", format, bad_rows="skip", hand_on=True), []
    monkeypatch.setattr(
        source.pipe,
        "_fill",
        lambda fill=source.pipe._fill: fill() and bool(held.append(len(source.pipe._held)) or 1),
    )
    pieces = [
        b"x,y\n" * (format == "csv") + line % 0,
        *[bad] * 100,
        line % 1,
        *[bad, blank] * 50,
        line % 2,
    ]
    pieces += [*[blank] * 100, line % 3, *[bad] * 3, line % 4]
    threading.Thread(target=lambda: [stdin.write(piece) for piece in pieces]).start()
    rows = source.rows()
    _, first = next(rows)
    # Nothing more is released: the rows behind the first one are in an unfinished chunk, and wait
    # until it is full.
    source.pipe.release(first.offset)
    found = [next(rows) for _ in range(4)]
    assert [row["x"] for row, _ in found] == ["1", "2", "3", "4"] and found[-1][1].bad == 153
    assert max(held) < 2**17, "of more than a mebibyte"
    state = source.pipe.to_json(first.offset, end=True)
    assert state["unread"].encode() == b"".join(line % i for i in (1, 2, 3, 4))
    assert state["bad"] == [[0, 100], [len(line % 1), 50], [3 * len(line % 1), 3]]
    stdin.write(line % 5)
    stdin.close()
    then = Source("-", format, bad_rows="skip", hand_on=True)
    assert then.pipe.restore(state, quotes=True) == []
    more = list(then.rows(columns=("x", "y")))
    assert [row["x"] for row, _ in more] == ["1", "2", "3", "4", "5"]
    assert [position.bad for _, position in more] == [100, 150, 150, 153, 153]


def test_a_redirected_file_with_bad_rows_is_put_back_with_them(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_bytes(b"x,y\n0,0\n" + b"1\n" * 9 + b"1,1\n2\n2,2\n")
    with open(tmp_path / "a.csv") as file:
        monkeypatch.setattr(sys, "stdin", file)
        first = Source("-", "csv", bad_rows="skip", hand_on=True)
        (_, kept), _, (_, last) = first.rows()
        assert (kept.bad, last.bad) == (0, 10)
        state = first.pipe.to_json(kept.offset, end=True)
        assert (state["unread"], state["bad"]) == ("", [])
        then = Source("-", "csv", bad_rows="skip", hand_on=True)
        assert then.pipe.restore(state, quotes=True) == []
        assert [(row["x"], place.bad) for row, place in then.rows(columns=("x", "y"))] == [
            ("1", 9),
            ("2", 10),
        ]


@given(
    st.lists(
        st.tuples(st.sampled_from(["good", "bad", "blank", "quote"]), st.integers(0, 30)),
        max_size=40,
    ),
    st.data(),
)
def test_a_pipe_with_rows_to_be_skipped_goes_on_anywhere_as_if_it_were_one(kinds, data):
    texts = {"good": '%d,"%s"\n', "bad": "%d,%s,\n", "blank": "\n", "quote": '%d,"%s\n'}
    lines = [
        "x,y\n",
        *(
            texts[kind] % (i, "a" * size) if kind != "blank" else "\n"
            for i, (kind, size) in enumerate(kinds)
        ),
    ]
    stream = "".join(lines).encode()
    whole = [(row["x"], position.bad) for row, position in _rows_of(stream)[1]]
    at = data.draw(st.integers(0, len(whole)))
    pipe, rows = _rows_of(stream, at + data.draw(st.integers(0, 3)))
    done = rows[at - 1][1] if at else None
    state = pipe.to_json(done.offset if at else len(lines[0]), end=True)
    rest = stream[len(stream) - len(pipe.left) :] if pipe.left else b""
    _, more = _rows_of(rest, state=state, bad=done.bad if at else 0)
    assert [(row["x"], place.bad) for row, place in more] == whole[at:]


def _rows_of(stream, count=None, state=None, bad=0):
    """Return the pipe after reading in blocks of 64 bytes, and its first rows with positions."""
    source, file = Source("-", "csv", bad_rows="skip", hand_on=True), io.BytesIO(stream)
    pipe = source.pipe

    def fill():
        block = file.read(64)
        pipe._held += block
        pipe.left = file.getbuffer()[file.tell() :]
        return bool(block)

    pipe._fill, pipe.left = fill, stream
    if state is not None:
        pipe.restore(state | {"end": True}, quotes=True)
    rows = source.rows(Position(bad=bad), columns=() if state is None else ("x", "y"))
    return pipe, list(rows if count is None else islice(rows, count))


def test_without_a_run_nothing_is_kept(stdin):
    source = Source("-", "csv")
    rows = source.rows()
    stdin.write(b"x,y\n")
    for _ in range(300):
        stdin.write(b"1," + b"2" * 997 + b"\n")
        next(rows)
        assert len(source.pipe._held) <= 2000


@given(st.binary(max_size=60), st.integers(1, 20))
def test_lines_are_those_of_a_file(data, limit):
    file, pipe = io.BytesIO(data), Pipe()
    pipe._held += data
    pipe._fill = lambda: False
    assert pipe.peek(2) == data[:2]
    while line := file.readline(limit):
        assert pipe.readline(limit) == line
    assert pipe.readline(limit) == b""
