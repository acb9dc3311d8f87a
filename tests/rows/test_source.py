"""Rows from files: every format, exact positions, files that change, errors with a remedy."""

import gzip
import io
import json
import random
import sys
import tracemalloc
from itertools import islice

import hypothesis.strategies as st
import pyarrow
import pytest
from hypothesis import given, settings
from pyarrow import parquet

from foretrace.stream.read.ahead import Ahead
from foretrace.stream.read.lines import Position, ReplacedError, SourceError
from foretrace.stream.read.source import SYMBOL, Source

SUFFIXES = ("csv", "csv.gz", "tsv", "jsonl", "jsonl.gz", "txt", "txt.gz", "parquet")
TEXTS = st.text('ab1\n",é ', max_size=4) | st.text(
    st.characters(exclude_categories=["Cs", "Cc"]), max_size=5
)
TABLES = st.lists(st.tuples(st.integers(0, 10**6), TEXTS), min_size=1, max_size=30)


def write(path, rows, *, is_torn=False):
    """Write rows in the format of the name, and return them as they are to be read.

    The last line break is missing if the end is torn.
    """
    fields, (kind, *packed) = [{"x": str(x), "y": y} for x, y in rows], path.name.split(".")[1:]
    if kind == "parquet":
        parquet.write_table(pyarrow.Table.from_pylist(fields), path, row_group_size=7)
        return fields
    if kind == "jsonl":
        lines = [json.dumps(row) for row in fields]
    elif kind == "txt":
        lines = [f"{x} {y}" for x, y in rows]
    else:
        delimiter = "\t" if kind == "tsv" else ","
        quoted = [(x, '"' + y.replace('"', '""') + '"') for x, y in rows]
        lines = [f"{x}{delimiter}{y}" for x, y in [("x", "y"), *quoted]]
    text = "\n".join(lines) + "\n" * (not is_torn)
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    return [{SYMBOL: symbol} for symbol in text] if kind == "txt" else fields


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
def test_rows_are_read_as_they_are_and_read_on_only_behind_those_that_were_read(
    tmp_path_factory, suffix, rows, other, change, torn, data
):
    path = tmp_path_factory.mktemp("table") / f"a.{suffix}"
    written = write(path, rows, is_torn=torn)
    found = list(Source(str(path)).rows())
    assert [row for row, _ in found] == written
    assert [position.row for _, position in found] == list(range(1, len(found) + 1))
    whole = [(row, position) for row, position in found if not position.is_torn]
    done = whole[: data.draw(st.integers(0, len(whole)), label="rows read before")]
    behind = done[-1][1] if done else None
    assert list(Source(str(path)).rows(behind)) == found[len(done) :]
    at = data.draw(st.integers(0, len(rows) - 1), label="place of the change")
    present, before = write(path, CHANGES[change](rows, other, at)), written[: len(done)]
    try:
        after = [row for row, _ in Source(str(path)).rows(behind)]
    except ReplacedError as error:
        assert present[: len(before)] != before, "a file that has only grown was refused"
        assert "new run" in str(error) and "original file" in str(error)
    else:
        assert before + after == present


FEW, OPEN = "x,y\n" + "1,2\n" * 5, 'x,y\n1,1\n%d,"\n\n4,4\n5,5\n'
REPLACED = {
    "cut.csv": (FEW, 3, "x,y\n1,1\n", "shorter than the 16 bytes"),
    "repaired behind.csv": ("x,y\n1,1\n2,2\n3\n", 2, "x,y\n1,1\n2,2\n3,3\n4,4\n", ["3", "4"]),
    # A row that was skipped is under the digest, too.
    "skipped.csv": (OPEN % 3, 2, OPEN % 3, ["5"]),
    "skipped one replaced.csv": (OPEN % 3, 2, OPEN % 2, "are not those that were read"),
}


@pytest.mark.parametrize("name", REPLACED)
def test_what_may_change_in_a_file_lies_behind_the_position(tmp_path, name):
    (before, count, after, outcome), path = REPLACED[name], tmp_path / name
    path.write_text(before)
    *_, (_, position) = islice(Source(str(path), bad_rows="skip").rows(), count)
    path.write_text(after, encoding="latin-1")
    rows = Source(str(path), bad_rows="skip").rows(position)
    if isinstance(outcome, str):
        with pytest.raises(ReplacedError, match=outcome):
            next(rows)
    else:
        assert [row["x"] for row, _ in rows] == outcome


def test_reading_is_lazy(monkeypatch):
    endless = io.BytesIO(b"x,y\n" + b"1,2\n" * 10 + b"3\n")
    monkeypatch.setattr(sys, "stdin", type("In", (), {"buffer": io.BufferedReader(endless)}))
    rows = Source("-", "csv").rows()
    assert [row["x"] for row, _ in islice(rows, 10)] == ["1"] * 10
    with pytest.raises(SourceError, match="standard input, line 12: 1 fields"):
        next(rows)


@pytest.mark.parametrize("bad", [b'"5,6', b'5,"6"x', b"\xff,2", b"3"])
@pytest.mark.parametrize("closing", [b"", b'7,"8"\n'])
def test_a_bad_row_costs_only_its_own_line(tmp_path, bad, closing):
    rows, path = range(1000), tmp_path / "a.csv"
    lines = [b"a,b\n1,2\n", bad, b"\n\n", *(b"%d,2\n" % i for i in rows), closing, b"9,9\n"]
    path.write_bytes(data := b"".join(lines))
    found = list(Source(str(path), bad_rows="skip").rows())
    numbers = [1, *rows, *[7] * bool(closing), 9]
    assert [row["a"] for row, _ in found] == [str(number) for number in numbers]
    last = found[-1][1]
    assert (last.bad, last.offset, last.line) == (1, len(data), data.count(b"\n"))
    for i in (0, 1, len(found) - 1):
        source = Source(str(path), bad_rows="skip")
        assert list(source.rows(found[i][1])) == found[i + 1 :]


def endless(folder):
    """Return a source of 64 MiB without a line break."""
    with open(folder / "endless.csv", "wb") as file:
        file.truncate(2**26)
    return Source(file.name)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda folder: Source(f"{folder}/absent.csv"), "No such file"),
        (lambda folder: Source(str(folder), "csv"), "is a folder"),
        (lambda folder: Source("table.xls"), "--format csv"),
        (lambda folder: Source("-"), "standard input has no name"),
        (lambda folder: Source("-", "parquet"), "parquet cannot be read from standard input"),
        (lambda folder: Source("-", "csv"), "standard input cannot be read: it is closed"),
        (lambda folder: Source("a.csv", delimiter="ab"), "single character"),
        (endless, "line 1: a row of more than 1048576 bytes"),
    ],
)
def test_what_cannot_be_read_says_why_in_bounded_memory(tmp_path, monkeypatch, read, message):
    monkeypatch.setattr(sys, "stdin", None)
    tracemalloc.start()
    try:
        with pytest.raises(SourceError, match=message):
            next(read(tmp_path).rows())
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("seed", range(20))
def test_rows_have_the_known_values_of_their_members_next_rows_wherever_reading_goes_on(seed):
    draw = random.Random(seed)
    horizon, members, count = draw.randint(1, 3), draw.randint(1, 3), draw.randint(5, 60)
    names = "abc"[: draw.randint(1, 3)]
    table = [
        ({"m": draw.choice(names), "y": draw.choice([1, None, 2]), "p": i}, Position(i))
        for i in range(1, count + 1)
    ]
    last = {row["m"]: position.row for row, position in table if row["y"] is not None}
    expected = []
    for row, position in table:
        if position.row <= last.get(row["m"], 0):  # others are to come
            near = table[position.row : position.row + horizon * members]
            later = [one["p"] for one, _ in near if one["m"] == row["m"]] + [None] * horizon
            expected.append((row["p"], later[:horizon]))
    # As in a run, members are compared by their text.
    table = [
        (row | {"m": f" {row['m']}" if position.row % 2 else row["m"]}, position)
        for row, position in table
    ]
    read = Ahead(["p"], horizon, "m", "y", members).rows
    whole = list(read(iter(table)))
    steps = [f"p+{k + 1}" for k in range(horizon)]
    assert [(row["p"], [row[name] for name in steps]) for row, _ in whole] == expected
    for at, (_, position) in enumerate(whole):
        if not position.is_torn:
            assert list(read(iter(table[position.row :]))) == whole[at + 1 :]
    for size in range(count):  # a file that grows
        begun = [row for row, position in read(iter(table[:size])) if not position.is_torn]
        assert begun == [row for row, _ in whole[: len(begun)]]
