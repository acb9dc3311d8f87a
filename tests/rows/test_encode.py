"""Rows as numbers, by a definition of each value; columns that come late; what is refused."""

import datetime
import json
import math
import re
import zlib
from collections import Counter

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from test_values import NOTHING, TEXTS

from foretrace.stream.read.encode import Encoder, EncodingError
from foretrace.stream.read.schema import Column, check_column, infer_columns, infer_kind
from foretrace.stream.read.values import (
    MAX_ABS_VALUE,
    as_number,
    as_text,
    as_time,
    is_absent,
    is_missing,
)

missing = st.sampled_from([*NOTHING, *TEXTS])
numbers = st.one_of(
    st.integers(-(10**6), 10**6),
    st.floats(-1e6, 1e6),
    st.booleans(),
    st.floats(-1e6, 1e6, width=32).map(np.float32),
    st.floats(-1e6, 1e6).map(lambda x: np.array([x])),
    st.floats(-1e6, 1e6).map(repr),
)
times = st.one_of(
    st.datetimes(),
    st.dates(),
    st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1)).map(pd.Timestamp),
    st.integers(-(10**18), 10**18).map(lambda n: np.datetime64(n, "ns")),
    st.datetimes().map(lambda time: time.isoformat(" ")),
)
categories = st.text(min_size=1).filter(lambda text: infer_kind([text]) == "categorical")
VALUES = {"numeric": numbers, "time": times, "categorical": categories}
LATER = {
    "numeric": [math.inf, "-inf", 1e300, "abc", 10**400],
    "time": ["yesterday", 3, "9999-12-31T23:59:59-05:00", "2023-02-30"],
    "categorical": ["red", "green", "blue", 1, "1", None, ""],
}
"""Values that no column of the kind begins with: most cannot be used."""

SIZES = {"numeric": 2, "undecided": 2, "time": 7, "categorical": 3}
PERIODS = (86400, 7 * 86400, 365.2425 * 86400)
TOLD = {"not a number", "not a date", "unknown categories"}


def defined(kind, value, words):
    """Return the inputs of a value, and why it could not be used; new words are learned."""
    if kind == "categorical":
        text = None if is_absent(value) else as_text(value)
        if text is not None and text not in words and len(words) < SIZES[kind] - 1:
            words.append(text)
        slot = 1 + words.index(text) if text in words else 0
        why = None if slot else "missing" if text is None else "unknown categories"
        return [float(i == slot) for i in range(SIZES[kind])], why
    found = None if is_missing(value) else (as_time if kind == "time" else as_number)(value)
    if kind == "time":
        why = "missing" if is_missing(value) else "not a date"
        if found is None:
            return [0, 0, 0, 0, 0, 0, 1], why
        angles = [2 * math.pi * found / period for period in PERIODS]
        return [f(angle) for angle in angles for f in (math.sin, math.cos)] + [0], None
    if kind == "undecided":
        return [0, 1], "missing"
    if found is not None and abs(found) < MAX_ABS_VALUE:
        return [found, 0], None
    why = "missing" if is_missing(value) else "not a number" if found is None else "infinite"
    return [math.nan, 0], why


@settings(max_examples=25)
@given(data=st.data(), is_given=st.booleans())
def test_a_row_is_its_columns_one_beside_the_other(data, is_given):
    """Whenever its first value comes. Looking, going on and undoing a row change nothing."""
    kinds = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4))
    columns = []
    for kind in kinds:
        late = data.draw(st.lists(missing, max_size=4))
        first = data.draw(VALUES[kind])
        later = st.lists(VALUES[kind] | missing | st.sampled_from(LATER[kind]), max_size=6)
        columns.append([*late, first, *data.draw(later)])
    names = "abcd"[: len(kinds)]
    decided = list(map(Column, names, kinds)) if is_given else []
    make = {"width": 60, "adopt": True, "categories": SIZES["categorical"]}
    encoder, words, counts = Encoder(decided, **make), {}, Counter()
    for t in range(max(map(len, columns))):
        row = {name: of[t] for name, of in zip(names, columns, strict=True) if t < len(of)}
        before = json.dumps(encoder.to_json())
        looked = encoder.encode(row, learn=False)
        assert json.dumps(encoder.to_json()) == before
        again = Encoder(decided, **make)
        again.restore(json.loads(before))
        found = encoder.encode(row)
        for x in (looked, again.encode(row)):
            np.testing.assert_array_equal(x[:2], found[:2])
        again.restore(json.loads(before))  # a refused row is undone
        assert json.dumps(again.to_json()) == before
        is_number = np.zeros(60)
        for name, (kind, at) in encoder.columns.items():
            i = names.index(name)
            is_empty = all(map(is_missing, columns[i][: t + 1]))
            assert kind == ("undecided" if is_empty and not is_given else kinds[i])
            inputs, why = defined(kind, row.get(name), words.setdefault(i, []))
            np.testing.assert_allclose(found.x[at : at + len(inputs)], inputs, atol=1e-6)
            is_number[at] = kind == "numeric"
            counts[why] += 1
        assert found.is_number.tolist() == is_number.tolist()
        places = {at for kind, at in encoder.columns.values() if SIZES[kind] == 2}
        assert set(encoder.number_places) == places
        del counts[None]
        assert encoder.counts == counts and len(encoder.news) == len(counts.keys() & TOLD)


def test_words_of_texts_are_counted_at_their_hashes_behind_all_other_inputs():
    columns = [Column("s", "text"), Column("x", "numeric"), Column("t", "text")]
    encoder, places = Encoder(columns, hashed=5), {"s": 7, "t": 2}
    assert (encoder.width, encoder.used, encoder.num_words) == (12, 2, 10)
    for text in ("It's here; HERE it is!", "Straße 7", "\ud800 x", "", None, "...", 7.5):
        row = {"s": text, "x": 1, "t": f"{text} again"}
        x = encoder.encode(row).x
        for name, at in places.items():
            words = re.findall(r"\w+", str(row[name] or "").lower())
            hashes = [zlib.crc32(word.encode(errors="surrogatepass")) % 5 for word in words]
            expected = np.bincount(np.array(hashes, int), minlength=5) / max(len(words), 1) ** 0.5
            np.testing.assert_allclose(x[at : at + 5], expected)
    assert encoder.counts == {"missing": 3}  # "", None, and no word
    again = Encoder(columns, hashed=5)
    again.restore(saved := encoder.to_json())
    assert again.to_json() == saved
    saved["columns"]["s"] = ["text", 8]
    with pytest.raises(ValueError, match="place of s=8 must be 0 to 7"):
        again.restore(saved)


def test_texts_are_columns_of_many_words_that_differ():
    texts = [f"Printer {i} in room {i % 7} is broken" for i in range(20)]
    kinds = {
        "text": (texts, ["a long text of so many different words is one"]),
        "categorical": (
            texts[:19],
            ["light rain showers"],
            texts[:3] * 20,
            [f"{i % 28 + 1} March 2024" for i in range(40)],
            [f"{i}{i},5 EUR" for i in range(40)],
            [f"id {i}" for i in range(40)],
        ),
        "numeric": ([str(i) for i in range(40)],),
    }
    for kind, columns in kinds.items():
        for values in columns:
            rows = [{"a": value} for value in values]
            assert infer_columns(rows, {}, texts=True) == [Column("a", kind)]
            assert infer_columns(rows, {}) == [Column("a", kind.replace("text", "categorical"))]


def test_new_columns_take_the_room_that_is_left_whatever_their_order():
    one, two = (Encoder(width=6, adopt=True, categories=2) for _ in range(2))
    a, b = one.encode({"x": 1, "a": 2}), two.encode({"a": 2, "x": 1})
    np.testing.assert_array_equal(a[:2], b[:2])
    assert a.x.tolist() == [2, 0, 1, 0, 0, 0] and a.is_number.tolist() == [1, 0, 1, 0, 0, 0]
    for row in ({"c": "red"}, {"z": 1}, {"z": 2}, {"z": None}):
        one.encode(row)
    assert list(one.columns) == ["a", "x", "c"]
    assert one.counts["values of columns without room"] == 2
    assert len(one.news) == 1 and one.news[0].startswith("'z' finds no room in 6 inputs")


def test_kinds_come_from_the_first_rows_and_can_be_overridden():
    rows = [
        {"a": "1", "b": "NA", "c": "2020-01-01 10:00:00", "d": "red", "e": True},
        {"a": " ", "b": "1e3", "c": "2020-01-01 11:00:00", "d": "3", "e": None, "f": None},
    ]
    kinds = ["numeric", "numeric", "time", "categorical", "numeric", "undecided"]
    assert dict(infer_columns(rows, {})) == dict(zip("abcdef", kinds, strict=True))
    found = dict(infer_columns(rows, {"a": "categorical", "b": None}))
    assert found["a"] == "categorical" and "b" not in found


X = [Column("x", "numeric")]
REFUSED = [
    (lambda: infer_columns([{"a": 1, "b": 2, "e": 3}], {"e1": "numeric"}), "no column 'e1', only"),
    (lambda: check_column("e1", ["a", "e"]), "only a, e; did you mean 'e'"),
    (lambda: Encoder(X, width=1), "no room for column 'x'"),
    (lambda: Encoder(X, categories=1), "categories=1"),
    (lambda: Encoder(X).restore(Encoder().to_json()), r"columns=\[\] must be "),
    *(
        (lambda x=x: Encoder(X, stops=True).encode({"x": x}), "column 'x' holds .*--outliers clip")
        for x in LATER["numeric"]
    ),
]


@pytest.mark.parametrize(("call", "words"), REFUSED)
def test_what_cannot_be_encoded_is_refused(call, words):
    with pytest.raises((ValueError, EncodingError), match=words):
        call()
