"""Small sources and large options that would fill the memory: refused, or read in bounds."""

import json
import re
import subprocess
import sys
import tracemalloc

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from tiers import fast

from foretrace.stream.model.model_config import ModelConfig
from foretrace.stream.read import parquet as own
from foretrace.stream.read import source as sources
from foretrace.stream.read.encode import Encoder
from foretrace.stream.read.lines import MAX_LINE, SourceError
from foretrace.stream.read.schema import Column
from foretrace.stream.read.slots import SlotTable
from foretrace.stream.read.source import Source
from foretrace.stream.read.streams import Streams
from foretrace.stream.read.target import ClassTarget
from foretrace.stream.read.values import MAX_TEXT, as_text
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.plan import Plan, build

ROWS = 1200
KINDS = ("string", "binary", "dictionary")


def bomb(path, kind="string", size=700_000):
    """Write a short file whose rows hold one long text each, all the same."""
    text = pyarrow.array([("a" * size).encode()]).cast(kind if kind == "binary" else "string")
    places = pyarrow.array([0] * ROWS, pyarrow.int32())
    texts = pyarrow.DictionaryArray.from_arrays(places, text)
    table = pyarrow.table({"x": texts, "y": [1] * ROWS})
    parquet.write_table(table, path, compression="zstd", store_schema=kind == "dictionary")
    assert path.stat().st_size < 3000


@pytest.mark.program
def test_a_parquet_file_of_repeated_texts_is_read_in_bounded_memory(tmp_path):
    bomb(tmp_path / "a.parquet", "dictionary")
    code = """if True:
    import resource, sys
    import pyarrow.parquet
    from foretrace.stream.read.source import Source
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert sum(len(row["x"]) == 700_000 for row, _ in Source(sys.argv[1]).rows()) == 1200
    print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
    """
    command = [sys.executable, "-c", code, str(tmp_path / "a.parquet")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert int(done.stdout) < 100


@pytest.mark.parametrize("kind", KINDS)
def test_texts_of_a_parquet_file_have_a_largest_length(tmp_path, kind, monkeypatch):
    bomb(tmp_path / "a.parquet", kind, MAX_LINE + 1)
    source = Source(str(tmp_path / "a.parquet"))
    message = f"column 'x' holds a text of {MAX_LINE + 1} bytes, but at most"
    with pytest.raises(SourceError, match=message):
        next(source.rows())
    monkeypatch.setattr(own, "MAX_TEXTS", 1000)
    message = "column 'x' has .* bytes of texts in one group of rows, but at most 1000"
    with pytest.raises(SourceError, match=message):
        next(source.rows())


BLANK = "more than 1000 blank lines one after another; is this the right source"
BAD = "1 fields.*1001 rows one after another could not be read"


@pytest.mark.parametrize(("line", "message"), [("\n", BLANK), ("1\n", BAD)])
def test_lines_without_a_row_are_skipped_but_not_without_end(tmp_path, monkeypatch, line, message):
    monkeypatch.setattr(sources, "MAX_IN_A_ROW", 1000)
    path, text = tmp_path / "a.csv", "x,y\n" + line * 990 + "1,2\n"
    source = Source(str(path), bad_rows="skip")
    path.write_text(text)
    *_, (_, position) = source.rows()
    assert position.bad == 990 * (message == BAD)
    path.write_text(text + line * 1100)
    with pytest.raises(SourceError, match=message):
        list(source.rows())


TINY = ModelConfig(size="small", depth=1, model_size=4, state_size=3, rule="hybrid")
MANY = [Column(f"c{i}", "categorical") for i in range(100)]
TEXTS = [Column(f"t{i}", "text") for i in range(3)]
LARGE = [
    ({"horizon": 2500}, [], "horizon=2500 must be at most 1000: what it counts is kept in memory"),
    ({"horizon": 900, "member": "m", "members": 1000}, [], "members=1000, delay=900: a mixture"),
    ({"categories": 1000}, MANY, "1000 for each of 100 columns are more than 65536 inputs"),
    ({"member": "m", "members": 3 * 10**8}, [], "members=300000000, delay=0: a mixture"),
    (
        {"member": "m", "members": 3, "delay": 10**7, "model": TINY},
        [],
        "members=3, delay=10000000: .* room for 0 members under --rule .*; use fewer members",
    ),
    ({"delay": 10**9}, [], "delay=1000000000: a mixture.*the delay can be [0-9]+ rows"),
]


@pytest.mark.parametrize(("options", "columns", "message"), fast(LARGE, 3))
def test_large_options_are_refused_before_they_fill_the_memory(options, columns, message):
    """The number of members that is advised fits, and one more does not."""
    plan = Plan([Column("x", "numeric"), *columns], ["x", "y"], 0)

    def build_with(**more):
        given = {"target": "y", "model": ModelConfig(experts=("row",))} | options | more
        _ = build(StreamConfig("a.csv", **given), plan).mixture

    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=message) as error:
            build_with()
        assert tracemalloc.get_traced_memory()[1] < 30e6
    finally:
        tracemalloc.stop()
    if room := re.search(r"room for (\d\d+) members", str(error.value)):
        build_with(members=int(room[1]))
        with pytest.raises(ValueError, match="there is room for"):
            build_with(members=int(room[1]) + 1)


def test_long_categories_classes_and_labels_are_kept_short():
    encoder = Encoder([Column("c", "categorical")], categories=8)
    streams = Streams(encoder, ClassTarget(8), SlotTable(1), delay=50)
    for i in range(200):
        streams.push(None, {"c": f"{i}" * 100_000}, f"{i}" * 100_000)
    assert len(json.dumps(streams.to_json())) < 100 * MAX_TEXT
    assert streams.target.counts["classes without room"] == 150 - 8


@pytest.mark.full
@given(st.text(max_size=400), st.text(max_size=400))
def test_shortened_texts_are_as_different_as_the_texts(a, b):
    for text in (a, a * 3, a + b):
        assert len(as_text(text)) <= MAX_TEXT and (as_text(text) == text or len(text) > MAX_TEXT)
    assert (as_text(a + b) == as_text(a + b + "x")) is False
