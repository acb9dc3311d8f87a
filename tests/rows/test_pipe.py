"""Standard input read by one process after another: no lost byte, no torn row."""

import gzip
import io
import os
import sys
import threading
from itertools import islice

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foretrace._rows import pipe as pipes
from foretrace._rows.source import Position, Source

DATA = b"x,y\n" + b"".join(b"%d,%d\n" % (i, i * i) for i in range(400))


def take(count, **options):
    """Return a source on standard input, and its first rows: values of x, and positions."""
    source = Source("-", "csv", hand_on=True, **options)
    return source, [(row["x"], place) for row, place in islice(source.rows(), count)]


def go_on(state, format="csv", **options):
    """Return what a later process says of a state, and its rows: values of x, and bad rows."""
    source = Source("-", format, hand_on=True, **options)
    lost = source.pipe.restore(state, quotes=True)
    rows = list(source.rows(Position(row=7), columns=("x", "y")))
    assert [position.row for _, position in rows] == list(range(8, 8 + len(rows)))
    return lost, [(row["x"], position.bad) for row, position in rows]


def numbers(*values):
    return [(str(value), 0) for value in values]


@pytest.mark.parametrize("same", [True, False])
def test_a_torn_row_is_read_only_where_its_rest_follows(pipe, monkeypatch, same):
    torn = DATA.index(b"250,") + 2  # in the middle of a number
    pipe.write(DATA[:torn])
    source, rows = take(200)
    state = source.pipe.to_json(rows[-1][1].offset, end=same)
    assert len(state["unread"]) > 200, "nothing was read ahead: the test shows nothing"
    if not same:
        monkeypatch.setattr(pipes, "_identity", lambda: [0, 1])
    pipe.write(DATA[torn:] if same else b"x,y\n900,1\n")
    pipe.close()
    lost, more = go_on(state)
    dropped = "the incomplete row at the end of the earlier input, of 2 bytes, is dropped"
    assert more == numbers(*range(200, 400 if same else 250), *([] if same else [900]))
    assert lost == ([] if same else [dropped])


def test_a_killed_process_loses_rows_and_says_so(pipe):
    pipe.write(DATA[:3000])
    source, rows = take(100)
    state = source.pipe.to_json(rows[-1][1].offset, end=False)
    # It goes on for some bytes, and is killed in the middle of a row.
    torn = DATA.index(b"370,") + 1
    pipe.write(DATA[3000:torn])
    os.read(sys.stdin.fileno(), 10**6)
    pipe.write(DATA[torn:])
    pipe.close()
    lost, more = go_on(state)
    assert more == numbers(*range(100, DATA[:3000].count(b"\n") - 1), *range(371, 400))
    assert len(lost) == 2 and "the earlier process was killed" in lost[1]


def test_a_redirected_file_is_put_back(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_bytes(b"x,y\n0,0\n" + b"1\n" * 9 + b"1,1\n2\n2,2\n")
    with open(tmp_path / "a.csv") as file:
        monkeypatch.setattr(sys, "stdin", file)
        source, ((_, kept), _, (_, last)) = take(None, bad_rows="skip")
        assert (kept.bad, last.bad) == (0, 10)
        state = source.pipe.to_json(kept.offset, end=True)
        assert (state["unread"], state["bad"]) == ("", [])
        assert go_on(state, bad_rows="skip") == ([], [("1", 9), ("2", 10)])


def test_a_compressed_pipe_says_that_it_cannot_go_on(pipe):
    pipe.write(gzip.compress(DATA))
    pipe.close()
    source, rows = take(100)
    state = source.pipe.to_json(500, end=True)
    assert len(rows) == 100 and state["unread"] == ""
    assert "compressed" in Source("-", "csv").pipe.restore(state, quotes=True)[0]


@pytest.mark.parametrize(("hand_on", "most"), [(True, 2**16 + 1000), (False, 2000)])
def test_what_is_released_or_never_handed_on_is_forgotten(pipe, hand_on, most):
    source = Source("-", "csv", hand_on=hand_on)
    rows = source.rows()
    pipe.write(b"x,y\n")
    for _ in range(300):
        pipe.write(b"1," + b"2" * 997 + b"\n")
        _, position = next(rows)
        if hand_on:
            source.pipe.release(position.offset)
        assert len(source.pipe._held) <= most
    assert not hand_on or source.pipe.to_json(position.offset, end=True)["unread"] == ""


def test_rows_that_are_skipped_are_not_kept_until_a_good_one_comes(pipe, monkeypatch):
    source, held = Source("-", "csv", bad_rows="skip", hand_on=True), []
    fill, bad = source.pipe._fill, b"1," + b"2" * 5000 + b",3\n"
    monkeypatch.setattr(
        source.pipe, "_fill", lambda: fill() and bool(held.append(len(source.pipe._held)) or 1)
    )
    pieces = [b"x,y\n0,1\n", *[bad] * 100, b"1,1\n", *[bad, b"\n"] * 50, b"2,1\n"]
    threading.Thread(target=lambda: [pipe.write(piece) for piece in pieces]).start()
    rows = source.rows()
    _, first = next(rows)
    source.pipe.release(first.offset)  # the rows behind it wait until their chunk is full
    found = [next(rows) for _ in range(2)]
    assert [row["x"] for row, _ in found] == ["1", "2"] and found[-1][1].bad == 150
    assert max(held) < 2**17, "of more than a mebibyte"


TEXTS = {"good": '%d,"%s"\n', "bad": "%d,%s,\n", "blank": "\n", "quote": '%d,"%s\n'}


@example([("good", 0), ("quote", 3), ("good", 0)], 1, 0)  # goes on with a row to be skipped
@given(
    st.lists(st.tuples(st.sampled_from(sorted(TEXTS)), st.integers(0, 30)), max_size=40),
    st.integers(0, 40),
    st.integers(0, 3),
)
def test_a_pipe_with_rows_to_be_skipped_goes_on_anywhere_as_if_it_were_one(kinds, at, ahead):
    rows = [(TEXTS[kind], i, "a" * size) for i, (kind, size) in enumerate(kinds)]
    lines = ["x,y\n", *(text % (i, a) if "%" in text else text for text, i, a in rows)]
    stream = "".join(lines).encode()
    whole = [(row["x"], position.bad) for row, position in _rows_of(stream)[1]]
    at = min(at, len(whole))
    pipe, rows = _rows_of(stream, at + ahead)
    done = rows[at - 1][1] if at else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipes, "_identity", lambda: [0, 1])  # whatever standard input is here
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
