"""Real streams whose label depends on something that earlier rows wrote, held and cleared.

    FORETRACE_DATA=... python -m benchmarks.streams.memory --streams dialogue code wind
    FORETRACE_DATA=... python -m benchmarks.streams.remembering --streams dialogue code wind

Each function returns the columns by name, numbers or texts; the labels (T,); and the number of
classes, 0 for numbers. `random` says where the stream begins.
"""

import csv
import gzip
import io
import tokenize
from pathlib import Path

import numpy as np

from benchmarks.streams import made, sources
from benchmarks.streams.made import MADE

EACH = 10
"""Rows from label to label."""
MARKS = ' \n",.!?-;'
SIGNS = " \n#'\"\\()[]{},.:=_"


def dialogue(random, count):
    """Characters of War and Peace; the label says whether someone is speaking, between quotes."""
    with gzip.open(sources.data() / "streams" / "war_and_peace.txt.gz", "rt") as file:
        text = file.read()
    start = 10_000 + int(random.integers(0, 500_000))
    text = text[start : start + count + 1]
    speaking, labels = False, []
    for before, character in zip(text, text[1:], strict=False):
        if character == '"':
            speaking = before in " \n-"  # an opening quote follows a space, a line or a dash
        labels.append(int(speaking))
    return characters(text, MARKS), np.array(labels), 2


def code(random, count):
    """Characters of Python's standard library; in code, in a comment, or in a text."""
    files = sorted(Path(tokenize.__file__).parent.glob("*.py"))
    texts, labels = [], []
    for i in random.permutation(len(files)):
        text = files[i].read_text()
        texts.append(text)
        labels.append(parts(text))
        if sum(map(len, texts)) > count + 1:
            break
    labels = np.concatenate(labels)
    return characters("".join(texts)[: count + 1], SIGNS), labels[1 : count + 1], 3


def parts(text):
    """Return for each character 0 in code, 1 in a comment, 2 in a text."""
    starts = np.cumsum([0, *map(len, text.splitlines(keepends=True))])
    found = np.zeros(len(text), int)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            begin, end = (starts[row - 1] + column for row, column in (token.start, token.end))
            found[begin:end] = 1 if token.type == tokenize.COMMENT else 2
    return found


def characters(text, marks):
    """Return the kinds of each character and of the one before: a mark, or a class of others."""

    def kind(character):
        if character in marks:
            return f"mark {marks.index(character)}"
        return "upper" if character.isupper() else "lower" if character.islower() else "other"

    kinds = [kind(character) for character in text]
    return {"character": np.array(kinds[1:]), "before": np.array(kinds[:-1])}


def wind(random, count):
    """Hours in Beijing: the wind's direction and speed; its run since it turned, as a logarithm.

    The file has the sum of speeds since the direction changed. An hour's speed is its increase, or
    the sum itself where the direction is new.
    """
    with gzip.open(sources.data() / "streams" / "beijing_pm25.csv.gz", "rt") as file:
        hours = list(csv.DictReader(file))
    start = int(random.integers(0, len(hours) - count)) if len(hours) > count else 0
    hours = hours[start : start + count]
    run = np.array([float(hour["Iws"]) for hour in hours])
    direction = np.array([hour["cbwd"] for hour in hours])
    turned = np.append(True, direction[1:] != direction[:-1])
    speed = np.where(turned, run, np.diff(run, prepend=0.0))
    return {"direction": direction, "speed": speed}, np.log1p(run), 0


HELD = {stream.__name__: stream for stream in (dialogue, code, wind)}
SPACING = dict.fromkeys(MADE, made.EACH) | dict.fromkeys(HELD, EACH)
"""Rows from label to label of each stream with a memory."""


def encoded(columns):
    """Return columns as inputs (T, I): numbers in standard deviations, texts as indicators."""
    found = []
    for values in columns.values():
        if values.dtype.kind == "f":
            found.append((values - values[:100].mean()) / values[:100].std())
        else:
            found += [values == name for name in np.unique(values)]
    return np.stack(found, axis=1).astype(np.float32)


def rows_of(stream, seed, count):
    """Return inputs (T, I), labels (T,), and the number of classes of a stream, 0 for numbers."""
    random = np.random.default_rng(seed)
    if stream in HELD:
        columns, ys, classes = HELD[stream](random, count)
        return encoded(columns), ys, classes
    xs, ys, classes = MADE[stream](random, count)
    return np.asarray(xs, np.float32), ys, classes
