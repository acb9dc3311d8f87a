"""Rows from files: every format, exact positions, and hostile files that end in one clear error."""

import gzip
import io
import json
import subprocess
import sys
from itertools import islice

import hypothesis.strategies as st
import pyarrow
import pytest
from hypothesis import given
from pyarrow import parquet

from foretrace._rows.lines import SourceError
from foretrace._rows.source import Position, Source

ROWS = [
    {"t": str(i), "name": f'a "b", {i}\nü' if i % 3 else "", "y": str(i * 0.5)} for i in range(25)
]


def as_csv(rows, delimiter=","):
    def field(value):
        return '"' + value.replace('"', '""') + '"'

    lines = [delimiter.join(rows[0]), *(delimiter.join(map(field, row.values())) for row in rows)]
    return ("\n".join(lines) + "\n").encode()


def write(path, data):
    data = data.encode() if isinstance(data, str) else data
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


@pytest.fixture(
    params=["a.csv", "a.csv.gz", "a.tsv", "a.jsonl", "a.jsonl.gz", "a.parquet", "a.txt", "a.txt.gz"]
)
def file(request, tmp_path):
    """Return a source of each format and the rows that it holds."""
    path = tmp_path / request.param
    if ".parquet" in request.param:
        parquet.write_table(pyarrow.Table.from_pylist(ROWS), path, row_group_size=10)
    elif ".txt" in request.param:
        text = "".join(row["name"] for row in ROWS)
        return Source(write(path, text)), [{"symbol": symbol} for symbol in text]
    elif ".jsonl" in request.param:
        write(path, "\n".join(map(json.dumps, ROWS)))
    else:
        write(path, as_csv(ROWS, "\t" if ".tsv" in request.param else ","))
    return Source(str(path)), ROWS


def test_rows_and_their_positions(file):
    source, rows = file
    found = list(source.rows())
    assert [row for row, _ in found] == rows
    assert [position.row for _, position in found] == list(range(1, len(rows) + 1))
    for i in (0, 3, 9, 10, 17, len(rows) - 2):
        behind = list(source.rows(found[i][1]))
        assert behind == found[i + 1 :]
    assert list(source.rows(found[-1][1])) == []


def test_reading_is_lazy(tmp_path, monkeypatch):
    endless = io.BytesIO(b"x,y\n" + b"1,2\n" * 10 + b"3\n")
    monkeypatch.setattr(sys, "stdin", type("In", (), {"buffer": io.BufferedReader(endless)}))
    rows = Source("-", "csv").rows()
    assert [row["x"] for row, _ in islice(rows, 10)] == ["1"] * 10
    with pytest.raises(SourceError, match="standard input, line 12: 1 fields"):
        next(rows)


@pytest.mark.parametrize("header", [True, False])
def test_a_pipe_goes_on_from_now(monkeypatch, header):
    data = b"x,y\n" * header + b"1,2\n"
    monkeypatch.setattr(
        sys, "stdin", type("In", (), {"buffer": io.BufferedReader(io.BytesIO(data))})
    )
    rows = list(Source("-", "csv").rows(Position(row=7, offset=99), ("x", "y")))
    assert [(row, position.row) for row, position in rows] == [({"x": "1", "y": "2"}, 8)]


def test_bad_rows_can_be_skipped_and_are_counted(tmp_path):
    path = write(tmp_path / "a.csv", b'a,b\n1,2\n\xff,2\n\n3\n4,"5"6\n7,8\n')
    found = list(Source(path, bad_rows="skip").rows())
    assert [row["a"] for row, _ in found] == ["1", "7"] and found[-1][1].bad == 3
    assert list(Source(path, bad_rows="skip").rows(found[0][1])) == found[1:]
    path = write(tmp_path / "a.jsonl", '{"a": 1}\n3\n{"a": 2}\n')
    assert [position.bad for _, position in Source(path, bad_rows="skip").rows()] == [0, 1]
    assert list(
        Source(write(tmp_path / "b.csv", "a\n\xe4\n".encode("latin-1")), encoding="latin-1").rows()
    )


@pytest.mark.parametrize("opening", ['"5,6', '5,"6', '5,"6"x', '"5,"6'])
@pytest.mark.parametrize("closing", ["", '7,"8"\n', '"7",8\n'])
def test_an_open_quote_costs_only_its_own_line(tmp_path, opening, closing):
    rows = [f"{i},{i}" for i in range(3000)]
    data = "a,b\n1,2\n" + opening + "\n" + "\n".join(rows) + "\n" + closing + "9,9\n"
    found = list(Source(write(tmp_path / "a.csv", data), bad_rows="skip").rows())
    numbers = [1, *range(3000), *[7] * bool(closing), 9]
    assert [row["a"] for row, _ in found] == [str(number) for number in numbers]
    last = found[-1][1]
    assert (last.bad, last.offset, last.line) == (1, len(data), data.count("\n"))
    for i in (0, 1, 1500, len(found) - 1):
        source = Source(str(tmp_path / "a.csv"), bad_rows="skip")
        assert list(source.rows(found[i][1])) == found[i + 1 :]


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda folder: Source(f"{folder}/absent.csv"), "No such file"),
        (lambda folder: Source(str(folder), "csv"), "is a folder"),
        (lambda folder: Source("table.xls"), "--format csv"),
        (lambda folder: Source("-"), "standard input has no name"),
        (lambda folder: Source("-", "parquet"), "parquet cannot be read from standard input"),
        (lambda folder: Source("a.csv", delimiter="ab"), "single character"),
    ],
)
def test_what_cannot_be_opened_says_why(tmp_path, read, message):
    with pytest.raises(SourceError, match=message):
        next(read(tmp_path).rows())


@pytest.mark.full
def test_a_line_without_end_is_refused_in_bounded_memory():
    code = """if True:
    import resource, sys
    from foretrace._rows.source import Source
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        list(Source("/dev/zero", "csv").rows())
    except ValueError as error:
        print(error, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
    """
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    message, _, grown = done.stdout.strip().rpartition(" ")
    assert "a row of more than" in message and int(grown) < 50


FIELDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=5)


@given(st.lists(st.tuples(FIELDS, FIELDS)))
def test_any_table_is_read_back_from_any_row(tmp_path_factory, table):
    path = tmp_path_factory.mktemp("table") / "a.csv"
    rows = [dict(zip(("a", "b"), row, strict=True)) for row in table]
    path.write_bytes(as_csv([{"a": "", "b": ""}, *rows]))
    found = list(Source(str(path)).rows())
    assert [row for row, _ in found][1:] == rows
    for i, (_, position) in enumerate(found):
        assert list(Source(str(path)).rows(position)) == found[i + 1 :]
