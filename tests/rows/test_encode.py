"""Rows as numbers: types, missing values, growing vocabularies, new columns."""

import json
import math

import numpy as np
import pytest

from foretrace._rows.encode import Encoder, EncodingError
from foretrace._rows.schema import Column, check_column, infer_columns, infer_kind, is_classes
from foretrace._rows.values import as_time, is_missing

X = [Column("x", "numeric")]


def test_types_come_from_the_first_rows_and_can_be_overridden():
    rows = [
        {"a": "1", "b": "NA", "c": "2020-01-01 10:00:00", "d": "red", "e": True},
        {"a": " ", "b": "1e3", "c": "2020-01-01 11:00:00", "d": "3", "e": None, "f": None},
    ]
    kinds = ["numeric", "numeric", "time", "categorical", "numeric", "undecided"]
    assert dict(infer_columns(rows, {})) == dict(zip("abcdef", kinds, strict=True))
    assert dict(infer_columns(rows, {"a": "categorical", "b": None}))["a"] == "categorical"
    assert "b" not in dict(infer_columns(rows, {"b": None}))
    with pytest.raises(ValueError, match=r"no column 'e1', only a, b, .*did you mean 'e'"):
        infer_columns(rows, {"e1": "numeric"})
    with pytest.raises(ValueError, match="and 28 more"):
        check_column("x", [str(i) for i in range(40)])
    assert infer_kind([]) == "undecided" and infer_kind(["0x10"]) == "categorical"


def test_targets_are_classes_if_they_are_few_whole_numbers_or_text():
    assert is_classes(["0", "1", "NA"]) and is_classes([True, False]) and is_classes(["up", "1.5"])
    assert not is_classes([0.5, 1.0]) and not is_classes(range(100))


@pytest.mark.parametrize(
    "value", ["0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-05:00", "NaT", "yesterday", 3]
)
def test_what_is_no_date_or_out_of_range_is_missing(value):
    assert as_time(value) is None
    encoded = Encoder([Column("t", "time")]).encode({"t": value}).x
    np.testing.assert_array_equal(encoded, [0, 0, 0, 0, 0, 0, 1])


def test_times():
    assert as_time("1970-01-01T02:00:00+02:00") == 0
    encoder = Encoder([Column("t", "time")])
    np.testing.assert_allclose(encoder.encode({"t": "1970-01-01 06:00"}).x[:2], [1, 0], atol=1e-12)


@pytest.mark.parametrize(
    "value", [None, "", " NaN", math.nan, "?", math.inf, "-inf", 1e300, "abc", 10**400]
)
def test_what_is_not_a_number_is_masked_and_counted(value):
    encoder = Encoder(X)
    for row in ({"x": value}, {}):
        (x, flag), is_number = encoder.encode(row)
        assert math.isnan(x) and flag == 0 and is_number.tolist() == [1, 0]
    assert sum(encoder.counts.values()) == 2
    assert is_missing(value) == (encoder.counts["missing"] == 2)
    if not is_missing(value):
        with pytest.raises(EncodingError, match=r"column 'x' holds .*--outliers clip"):
            Encoder(X, stops=True).encode({"x": value})


def test_unknown_categories_share_a_slot():
    encoder = Encoder([Column("c", "categorical")], categories=3)
    slots = [int(np.argmax(encoder.encode({"c": c}).x)) for c in ("a", "b", "c", None, "a", 1)]
    assert slots == [1, 2, 0, 0, 1, 0] and encoder.counts["unknown categories"] == 2
    assert int(np.argmax(encoder.encode({"c": "z"}, learn=False).x)) == 0
    assert encoder.counts["unknown categories"] == 2


def test_new_columns_take_the_room_that_is_left_whatever_their_order():
    one, two = (Encoder(width=6, adopt=True, categories=2) for _ in range(2))
    a, b = one.encode({"x": 1, "a": 2}), two.encode({"a": 2, "x": 1})
    np.testing.assert_array_equal(a, b)
    assert a.x.tolist() == [2, 0, 1, 0, 0, 0] and a.is_number.tolist() == [1, 0, 1, 0, 0, 0]
    assert list(one.columns) == ["a", "x"]
    for row in ({"c": "red"}, {"z": 1}, {"z": 2}, {"z": None}):
        one.encode(row)
    assert list(one.columns) == ["a", "x", "c"]
    assert one.counts["values of columns without room"] == 2
    assert len(one.news) == 1 and one.news[0].startswith("'z' finds no room in 6 inputs")
    with pytest.raises(ValueError, match="no room for column 'x'"):
        Encoder(X, width=1)


def test_looking_does_not_learn():
    encoder = Encoder([*X, Column("c", "categorical")], adopt=True, width=60)
    encoder.encode({"x": 1.0, "c": "red"})
    before = encoder.to_json()
    for row in ({"x": 3.0, "new": 1}, {"x": "inf"}, {"c": "blue"}):
        encoder.encode(row, learn=False)
    assert encoder.to_json() == before


def test_the_state_survives_json_exactly():
    columns = [*X, Column("c", "categorical"), Column("t", "time")]
    encoder, again = Encoder(columns), Encoder(columns)
    rng = np.random.default_rng(0)
    rows = [
        {"x": rng.normal() / 3, "c": str(i % 5), "t": f"2020-01-0{1 + i % 9}"} for i in range(40)
    ]
    for row in rows[:20]:
        encoder.encode(row)
    again.restore(json.loads(json.dumps(encoder.to_json())))
    for row in rows[20:]:
        np.testing.assert_array_equal(encoder.encode(row).x, again.encode(row).x)
    assert again.to_json() == encoder.to_json()
    with pytest.raises(ValueError, match="the columns are"):
        Encoder([Column("y", "numeric")]).restore(encoder.to_json())


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="categories=1"):
        Encoder(X, categories=1)
