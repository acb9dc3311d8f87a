"""Meaning of values: missing, number, time, class; ways of writing them that are named."""

import datetime
import itertools
import json
import math
from decimal import Decimal

import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given

from foretrace.stream.read.formats import date_formats, number_format, read_date
from foretrace.stream.read.schema import infer_kind
from foretrace.stream.read.target import MANY, ClassTarget
from foretrace.stream.read.values import as_number, as_time, is_absent, is_missing

pd = pytest.importorskip("pandas")

FLOATS = (float, np.float16, np.float32, np.float64, Decimal, ml_dtypes.bfloat16)
NOTHING = [
    None,
    *(kind("nan") for kind in FLOATS),
    Decimal("sNaN"),
    np.datetime64("NaT", "s"),
    np.datetime64("NaT", "ns"),
    np.timedelta64("NaT", "s"),
    pd.NaT,
    pd.NA,
    np.ma.masked,
    np.array(np.nan),
    np.array([[np.nan]], np.float32),
]
"""Values of any type that stand for no value."""

TEXTS = ["", " ", "?", "-", "NA", "n/a", "NaN", "NaT", "<NA>", "null", "None"]
"""Texts that stand for no number and no time."""


@pytest.mark.parametrize(
    ("texts", "how"),
    [
        (["1,5", "2"], "a decimal comma"),
        (["1,234", "7"], "a comma, for decimals or thousands"),
        (["1,234", "7,25"], "a decimal comma"),
        (["1.234,5"], "a point between thousands and a decimal comma"),
        (["12 %", "3,5%"], "a percent sign"),
        (["USD 5", "USD 7"], "a currency"),
        (["1\u202f234.5", "2\u202f000"], "a space between thousands"),
        (["1.5", "2", "-3e5"], None),
        (["red", "1,5"], None),
        (["1,5", "2,5", "unknown"], "a decimal comma"),
        (["10-20", "20-30"], None),
    ],
)
def test_a_way_to_write_numbers_is_told_from_texts(texts, how):
    found = number_format(texts)
    assert (found and found.how) == how


@pytest.mark.parametrize("form", ["%d.%m.%Y %H:%M", "%m/%d/%Y", "%d %b %Y, %H:%M", "%d-%m-%Y"])
def test_a_format_of_dates_is_found_and_read(form):
    dates = [datetime.datetime(2025, 1 + i % 12, 1 + 2 * i, 8, 30) for i in range(14)]
    texts = [date.strftime(form) for date in dates]
    assert date_formats(texts) == [form] and all(as_time(text) is None for text in texts)
    days = [read_date(text, form).date() for text in texts]
    assert days == [date.date() for date in dates]
    assert date_formats([*texts, "red 1"]) == [] and date_formats(["1.5", "2.5"]) == []


def test_every_kind_of_nothing_is_missing():
    assert [is_absent(value) for value in NOTHING] == [True] * len(NOTHING)
    assert [is_missing(text) for text in TEXTS] == [True] * len(TEXTS)
    assert [is_absent(text) for text in TEXTS] == [True] + [False] * (len(TEXTS) - 1)
    date = datetime.date(2024, 1, 1)
    for value in (0, "0", False, np.float32(0), np.array([1, 2]), date, [], b""):
        assert not is_absent(value) and not is_missing(value)


DAY, NO = 86400, None
UNITS = ("D", "s", "ms", "us", "ns")
MEANINGS = [
    *((text, NO, NO) for text in ("1_000", "2%", "2,5", "1 000", "0x10", "yesterday")),
    *((value, NO, NO) for value in (b"1", 1j, np.complex64(1), [1], np.ones(2))),
    *((np.datetime64("1970-01-02", unit), NO, DAY) for unit in UNITS),
    *((np.timedelta64(1, "D").astype(f"timedelta64[{unit}]"), DAY, NO) for unit in UNITS),
    (pd.Timedelta("1 min"), 60, NO),
    (datetime.timedelta(minutes=1), 60, NO),
    (3, 3, NO),
    (pd.Timestamp("1970-01-02", tz="Europe/Berlin"), NO, DAY - 3600),
    ("1970-01-01T02:00:00+02:00", NO, 0),
    ("0001-01-01T00:00:00+01:00", NO, NO),  # beyond the calendar
    ("9999-12-31T23:59:59-05:00", NO, NO),
    *((nothing, ..., NO) for nothing in NOTHING),
]


@pytest.mark.parametrize(("value", "number", "time"), MEANINGS, ids=repr)
def test_a_date_is_no_number_a_duration_is_one_and_some_are_neither(value, number, time):
    assert as_time(value) == time and number in (as_number(value), ...)
    kinds = {"undecided": number is ..., "numeric": number is not NO, "time": time is not NO}
    assert infer_kind([value]) == next((kind for kind in kinds if kinds[kind]), "categorical")


@given(st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=8, unique=True))
def test_labels_are_taken_as_they_are(labels):
    for as_text in (True, False):
        target = ClassTarget(16, as_text=as_text)
        found = [target.read(label) for label in (*labels, *TEXTS[1:])][: len(labels)]
        assert found == [*range(len(labels))] and not target.counts["missing targets"]
        assert target.classes[: len(labels)] == labels
        assert all(math.isnan(target.read(nothing)) for nothing in ("", *NOTHING))


EQUAL = [1, 1.0, True, np.int64(1), np.float32(1), np.bool_(True), Decimal("1.0"), np.array([1])]


@pytest.mark.parametrize("as_text", [True, False])
def test_equal_values_are_one_class_and_have_the_name_of_the_first(as_text):
    for a, b in itertools.permutations(EQUAL, 2):
        target = ClassTarget(4, as_text=as_text)
        assert [target.read(label) for label in (a, b, 2, 0)] == [0, 0, 1, 2]
        assert target.read(b, learn=False) == 0
        if as_text:
            again = ClassTarget(4)
            again.restore(json.loads(json.dumps(target.to_json())))
            assert again.read(b) == 0 and again.classes == target.classes
    target = ClassTarget(4, as_text=as_text)
    # Rows of a file tell no number from its text; values of Python do.
    found = [target.read(label) for label in (True, "1", "1.0")]
    assert found == ([0, 0, 1] if as_text else [0, 1, 2])
    assert target.classes[0] is True


def test_room_for_classes_grows_while_there_is_memory():
    target = ClassTarget(2, grows=True)
    target.has_room = lambda classes: classes <= 16
    assert [target.read(i) for i in (*range(17), 0)] == [*range(16), -1, 0]
    assert target.output_size == 16 and target.news[1].endswith("there is no memory for more")
    saved, again = json.loads(json.dumps(target.to_json())), ClassTarget(2, grows=True)
    again.restore(saved)
    assert (again.output_size, again.to_json()) == (16, target.to_json())


def test_room_for_many_classes_grows_only_while_they_repeat():
    target = ClassTarget(MANY, grows=True)
    target.has_room = lambda classes: True
    for i in range(2 * MANY):
        target.read(f"row {i}")
    assert target.output_size == MANY and "come twice on average" in target.news[0]
    for i in range(MANY):
        target.read(f"row {i}")
    assert target.read("one more") == MANY and target.output_size == 2 * MANY
