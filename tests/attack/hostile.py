"""Hostile sources of rows and their outcome."""

import gzip
import io
import json
from typing import NamedTuple

import numpy as np
import pyarrow
from pyarrow import parquet

from foretrace.stream.read.lines import MAX_LINE


class Case(NamedTuple):
    """A source: its bytes, and the message that refuses it or the number of rows read from it."""

    data: bytes
    outcome: str | int
    options: tuple[str, ...] = ()


def table(**columns):
    file = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), file)
    return file.getvalue()


CSV = b"x,y\n1,2\n2,3\n"
PARQUET = table(x=[1, 2], y=[2, 3])
PACKED = gzip.compress(b"x,y\n" + np.random.default_rng(0).bytes(900).hex().encode())
TIMES = pyarrow.array([1, 2], pyarrow.time64("us"))

CASES = {
    # tables of text
    "empty.csv": Case(b"", "is empty; the first line must name the columns"),
    "header alone.csv": Case(b"x,y\n", "has no rows"),
    "row with too many fields.csv": Case(CSV + b"1,2,3\n", "line 4: 3 fields, but the header"),
    "bad rows among good ones, skipped.csv": Case(
        CSV + b"1\n\xff,2\n" + b"3,4\n", 3, ("--bad-rows", "skip")
    ),
    "two columns of one name.csv": Case(b"y,y\n1,2\n", "two columns named 'y'"),
    "column without a name.csv": Case(b"x,,y\n1,2,3\n", "a column without a name"),
    "100,000 columns.csv": Case(b",".join(b"c%d" % i for i in range(100_000)), "100000 columns"),
    "open quote, skipped.csv": Case(CSV + b'"1,2\n' + b"1,2\n" * 9, 11, ("--bad-rows", "skip")),
    "text behind a closing quote.csv": Case(CSV + b'"1"x,2\n', "not a row of csv"),
    "zero byte.csv": Case(CSV + b"\0,1\n", "line 4: a zero byte"),
    "bytes that are not UTF-8.csv": Case(CSV + b"\xff,1\n", "line 4: byte 1 is not utf-8.*latin-1"),
    "Latin-1, as it is.csv": Case("x,y\nä,1\n".encode("latin-1"), 1, ("--encoding", "latin-1")),
    "byte order mark.csv": Case(b"\xef\xbb\xbf" + CSV, 2),
    "Windows line breaks.csv": Case(CSV.replace(b"\n", b"\r\n"), 2),
    "old Macintosh line breaks.csv": Case(CSV.replace(b"\n", b"\r"), "not a row of csv|new-line"),
    "numbers beyond all bounds.csv": Case(
        b"x,y\n1e999,1\n-1e308,2\n1e308,3\n9" + b"9" * 500 + b",4\n", 4
    ),
    "NaN and infinity.csv": Case(b"x,y\nnan,1\ninf,2\n-Infinity,inf\n1,NaN\n", 4),
    "name with an escape sequence.csv": Case(b"\x1b[2J,z\n1,2\n", "no column 'y'"),
    "target without a value.csv": Case(b"x,y\n1,\n2,\n", "have no value of 'y'"),
    # lines of JSON
    "empty.jsonl": Case(b"", "is empty; each line must be a JSON object"),
    "list.jsonl": Case(b"[1]\n", "line 1: a JSON list"),
    "torn object.jsonl": Case(b'{"y": 1}\n{"y"', "line 2: not JSON.*without a line break"),
    "object in an object.jsonl": Case(b'{"x": {"a": 1}, "y": 1}\n', "'x' holds a dict; flatten"),
    "200,000 brackets.jsonl": Case(b'{"x": ' + b"[" * 200_000, "line 1: not JSON"),
    "number of 10,000 digits.jsonl": Case(b'{"y": ' + b"9" * 10_000 + b"}", "line 1: not JSON"),
    "new keys in every row.jsonl": Case(
        b"".join(
            json.dumps({"y": 1, **{f"{i}-{j}": 1 for j in range(100)}}).encode() + b"\n"
            for i in range(30)
        ),
        "columns together, but at most 1024",
    ),
    "lone surrogate.jsonl": Case(b'{"x": "\\ud800", "y": 1}\n{"x": "\\udfff", "y": 2}\n', 2),
    "other keys in each row.jsonl": Case(b'{"x": 1, "y": 1}\n{"y": 2}\n{"x": 2}\n', 3),
    # texts
    "bytes that are not UTF-8.txt": Case(b"ab\xff", "not utf-8.*latin-1"),
    # compressed
    "damaged.csv.gz": Case(gzip.compress(CSV * 99)[:-20], "damaged or incomplete gzip"),
    "flipped bits.csv.gz": Case(PACKED[:30] + bytes(90), "gzip"),
    "compressed, not by its name.csv": Case(gzip.compress(CSV), 2),
    "two parts.csv.gz": Case(gzip.compress(CSV) + gzip.compress(b"5,6\n"), 3),
    "16 mebibytes of one letter.csv.gz": Case(
        gzip.compress(b"x,y\n" + b"1" * 2**24, 1), "a row of more than"
    ),
    # parquet
    "cut.parquet": Case(PARQUET[:-30], "cannot be read as parquet"),
    "flipped bits.parquet": Case(PARQUET[:-60] + bytes(52) + PARQUET[-8:], "cannot be read"),
    "nested.parquet": Case(table(x=[{"a": 1}], y=[1]), "flatten it into columns"),
    "wide.parquet": Case(table(**{f"c{i}": [1] for i in range(1100)}), "1100 columns, but"),
    "text of a mebibyte.parquet": Case(table(x=["a" * (MAX_LINE + 1)], y=[1]), "holds a text of"),
    "bytes, decimals and times.parquet": Case(table(x=[b"\xff", None], y=[1, 2], z=TIMES), 2),
    # no tables
    "a format of its own.xls": Case(CSV, "--format csv, tsv, jsonl, parquet or text"),
}  # fmt: skip
