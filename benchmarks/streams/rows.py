"""Streams of `streams.toml`, each a plain file that foretrace and every peer read.

`prepare(name)` writes the inputs of a row and its `target` into a folder for temporary files;
`sources.py` says from what. Standard library only.
"""

import csv
import gzip
import os
import re
import tempfile
import tomllib
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from benchmarks.streams import sources


class Stream(NamedTuple):
    """One stream.

    Args:
        source: file in the folder `streams` of the data; package and name of a data set in it, or a
            file in it, and a file in that archive; or a function of `sources`.
        what: name of the target, for the table.
        target: column of the file; ahead: rows ahead at which it is read.
        classes: whether the target is a class.
        delay: rows after which the label of a row is known.
        previous: give the last known label as an input; all get it, or none.
        ignore: columns that are left out; categories: columns of categories; clock: columns of
            times; words: columns of texts.
        season: rows of a season, for the peers that ask for it: a day; of months or weeks a year.
    """

    source: str
    what: str
    target: str = ""
    ahead: int = 0
    classes: bool = False
    delay: int = 0
    previous: bool = True
    ignore: Sequence[str] = ()
    categories: Sequence[str] = ()
    clock: Sequence[str] = ()
    words: Sequence[str] = ()
    season: int = 24


def _groups():
    """Return the streams of `streams.toml` by group and name."""
    found = tomllib.loads(Path(__file__).with_name("streams.toml").read_text())
    return {
        group: {name: Stream(**options) for name, options in streams.items()}
        for group, streams in found.items()
    }


GROUPS = _groups()
STREAMS, PACKAGED, UNSEEN, LONG, TICKETS = GROUPS.values()
ANY = STREAMS | PACKAGED | UNSEEN | LONG | TICKETS
TEXTS = ("shakespeare", "war_and_peace")
WORK = Path(tempfile.gettempdir()) / "foretrace-streams"


def names(words):
    """Return names of streams, those of a group in place of the group's name."""
    return list(dict.fromkeys(name for word in words for name in GROUPS.get(word, [word])))


def prepare(name):
    """Write the file of a stream unless it is there; return its path."""
    stream = ANY[name]
    path = WORK / f"{name}.{'txt' if name in TEXTS else 'csv'}"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    torn = path.with_suffix(".part")
    if name in TEXTS:
        torn.write_bytes(gzip.decompress((sources.data() / "streams" / stream.source).read_bytes()))
    else:
        header, lines = sources.rows_of(stream)
        with open(torn, "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([header, *islice(lines, 500_000)])
    torn.rename(path)
    return path


def read(name, count):
    """Yield the first rows for a peer: inputs as numbers, and the target; None if missing."""
    stream, path = ANY[name], prepare(name)
    if name in TEXTS:
        text = path.read_text()[: count + 1]
        for now, following in zip(text, text[1:], strict=False):
            yield {f"is {now!r}": 1.0}, following
        return
    with open(path, newline="") as file:
        for row in islice(csv.DictReader(file), count):
            target = row.pop("target")
            x = {}
            for column, value in row.items():
                if column in stream.categories:
                    x[f"{column} is {value}"] = 1.0
                elif column in stream.words:
                    counts = Counter(re.findall(r"\w+", value.lower()))
                    x |= {f"{column} is {word}": float(count) for word, count in counts.items()}
                elif column in stream.clock:
                    x |= _clock(value)
                else:
                    x[column] = float(value) if value not in ("", "NA") else None
            known = target not in ("", "NA")
            yield x, (target if stream.classes else float(target)) if known else None


def options(name):
    """Return how `foretrace stream` reads the file of a stream, as options of a `StreamConfig`."""
    stream, source = ANY[name], os.fspath(prepare(name))
    if name in TEXTS:
        return {"source": source, "target": None}
    columns = {"time": tuple(stream.clock), "categorical": tuple(stream.categories)}
    task = "classification" if stream.classes else "regression"
    columns |= {"task": task, "previous": stream.previous, "delay": stream.delay}
    return {"source": source, "target": "target", **columns}


def _clock(text):
    from datetime import datetime

    now = datetime.fromisoformat(text)
    return {
        "hour": now.hour + now.minute / 60,
        "weekday": float(now.weekday()),
        "day": float(now.timetuple().tm_yday),
    }
