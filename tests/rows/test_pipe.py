"""Standard input: read once, in bounded memory, and again by a later process behind a header."""

import gzip
import threading
from itertools import islice

import pytest

from foretrace.stream.read.source import Position, Source, SourceError

DATA = b"x,y\n" + b"".join(b"%d,%d\n" % (i, i * i) for i in range(400))


@pytest.mark.parametrize("compressed", [False, True])
def test_rows_of_a_pipe_are_those_of_a_file(pipe, tmp_path, compressed):
    data = gzip.compress(DATA) if compressed else DATA
    (tmp_path / "a.csv").write_bytes(data)
    threading.Thread(target=lambda: (pipe.write(data), pipe.close())).start()
    rows = [row for row, _ in Source("-", "csv").rows()]
    assert rows == [row for row, _ in Source(str(tmp_path / "a.csv")).rows()]


def test_a_later_process_counts_on_behind_a_header_and_takes_no_row_for_one(pipe):
    pipe.write(DATA)
    assert [row["x"] for row, _ in islice(Source("-", "csv").rows(), 3)] == ["0", "1", "2"]
    pipe.write(b"x,y\n900,1\n1\n")
    later = Source("-", "csv", bad_rows="skip").rows(Position(row=7, bad=2))
    assert next(later) == ({"x": "900", "y": "1"}, Position(8, 2, 10, 2))
    pipe.close()
    assert list(later) == [] == list(Source("-", "csv").rows(Position(row=8)))
    with pytest.raises(SourceError, match="is empty"):
        next(Source("-", "csv").rows())


def test_what_was_read_is_forgotten_also_rows_that_are_skipped(pipe, monkeypatch):
    source, held = Source("-", "csv", bad_rows="skip"), []
    fill, bad = source.pipe._fill, b"1," + b"2" * 5000 + b",3\n"
    monkeypatch.setattr(
        source.pipe, "_fill", lambda: fill() and bool(held.append(len(source.pipe._held)) or 1)
    )
    pieces = [b"x,y\n0,1\n", *[bad] * 100, b"1,1\n", *[bad, b"\n"] * 50, b"2,1\n"]
    threading.Thread(target=lambda: [pipe.write(piece) for piece in pieces]).start()
    found = list(islice(source.rows(), 3))
    assert [row["x"] for row, _ in found] == ["0", "1", "2"] and found[-1][1].bad == 150
    assert max(held) < 2**17, "of more than a mebibyte"
