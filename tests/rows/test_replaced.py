"""A file read on from a position: the rows before are unchanged, or the file is refused."""

import gzip
import json

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from foretrace._rows.lines import ReplacedError
from foretrace._rows.source import Source

SUFFIXES = ("csv", "csv.gz", "tsv", "jsonl", "txt", "parquet")
TEXTS = st.text('ab1\n",é ', max_size=4)
TABLES = st.lists(st.tuples(st.integers(0, 10**6), TEXTS), min_size=1, max_size=30)


def write(path, rows, *, is_torn=False):
    """Write rows in the format of the name; without the last line break if the end is torn."""
    fields = [{"x": str(x), "y": y} for x, y in rows]
    if path.suffix == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(fields), path, row_group_size=7)
        return
    if path.suffix == ".jsonl":
        lines = [json.dumps(row) for row in fields]
    elif path.suffix == ".txt":
        lines = [f"{x} {y}" for x, y in rows]
    else:
        delimiter = "\t" if path.suffix == ".tsv" else ","
        quoted = [(x, '"' + y.replace('"', '""') + '"') for x, y in rows]
        lines = [f"{x}{delimiter}{y}" for x, y in [("x", "y"), *quoted]]
    data = ("\n".join(lines) + "\n" * (not is_torn)).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


CHANGES = {
    "nothing": lambda rows, other, at: rows,
    "rotated": lambda rows, other, at: other,
    "appended": lambda rows, other, at: [*rows, *other],
    "edited in place": lambda rows, other, at: [
        (x ^ (row == at), y) for row, (x, y) in enumerate(rows)
    ],
    "cut": lambda rows, other, at: rows[: at + 1],
    "row lost": lambda rows, other, at: [*rows[:at], *rows[at + 1 :]] or rows,
    "rows swapped": lambda rows, other, at: [*rows[at:], *rows[:at]],
}


@pytest.mark.parametrize("suffix", SUFFIXES)
@settings(max_examples=25)
@given(
    rows=TABLES,
    other=TABLES,
    change=st.sampled_from(sorted(CHANGES)),
    torn=st.booleans(),
    data=st.data(),
)
def test_what_is_read_on_belongs_to_what_was_read(
    tmp_path_factory, suffix, rows, other, change, torn, data
):
    path = tmp_path_factory.mktemp("replaced") / f"a.{suffix}"
    write(path, rows, is_torn=torn)
    whole = [(row, position) for row, position in Source(str(path)).rows() if not position.is_torn]
    done = whole[: data.draw(st.integers(0, len(whole)), label="rows read before")]
    at = data.draw(st.integers(0, len(rows) - 1), label="place of the change")
    write(path, CHANGES[change](rows, other, at))
    present = [row for row, _ in Source(str(path)).rows()]
    before = [row for row, _ in done]
    try:
        after = [row for row, _ in Source(str(path)).rows(done[-1][1] if done else None)]
    except ReplacedError as error:
        assert present[: len(before)] != before
        assert "new run" in str(error) and "original file" in str(error)
    else:
        assert before + after == present
        assert present[: len(before)] == before
    if change in ("nothing", "appended"):
        assert before + after == present, "a file that has only grown was refused"


@pytest.mark.parametrize(
    ("name", "header", "line"),
    [("a.csv", "x,y\n", "%d,1\n"), ("a.jsonl", "", '{"x": %d, "y": 1}\n')],
)
def test_a_line_is_never_read_from_its_middle(tmp_path, name, header, line):
    path = tmp_path / name
    path.write_text(header + "".join(line % (i * 1000) for i in range(60)))
    *_, (_, position) = list(Source(str(path)).rows())[:50]
    # As by log rotation.
    path.write_text(header + "".join(line % (71_032 + 10**8 * i) for i in range(60)))
    message = "up to line 5[01], are not those that were read.*original file.*new run"
    with pytest.raises(ReplacedError, match=message):
        next(Source(str(path)).rows(position))


@pytest.mark.parametrize("data", [b"", b"x,x\n", b"\xff\n", b"x,y\n1,1\n"])
def test_a_header_that_is_wrong_is_that_of_another_file(tmp_path, data):
    path = tmp_path / "a.csv"
    path.write_bytes(b"x,y\n" + b"1,2\n" * 5)
    *_, (_, position) = list(Source(str(path)).rows())[:3]
    path.write_bytes(data)
    with pytest.raises(ReplacedError, match="shorter than the 16 bytes"):
        next(Source(str(path)).rows(position))


def test_rows_behind_the_position_may_be_repaired(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("x,y\n1,1\n2,2\n3\n")
    rows = Source(str(path)).rows()
    next(rows)
    _, position = next(rows)
    path.write_text("x,y\n1,1\n2,2\n3,3\n4,4\n")
    assert [row["x"] for row, _ in Source(str(path)).rows(position)] == ["3", "4"]


def test_skipped_rows_are_under_the_digest_too(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('x,y\n1,1\n3,"\n\n4,4\n5,5\n')
    *_, (_, position), _ = Source(str(path), bad_rows="skip").rows()
    assert position.bad == 1
    assert [row["x"] for row, _ in Source(str(path), bad_rows="skip").rows(position)] == ["5"]
    path.write_text('x,y\n1,1\n2,"\n\n4,4\n5,5\n')
    with pytest.raises(ReplacedError):
        next(Source(str(path), bad_rows="skip").rows(position))
