"""Streams that ship inside Python packages: all of river's with one target, and four of statsmodels'.

They were written down before any of them was run. `write(name, file)` writes one as plain CSV, with the inputs of
a row and its `target`.
"""

import csv
from typing import NamedTuple


class Packaged(NamedTuple):
    """A stream of a package.

    Args:
        where: the package and the name of the data set in it.
        what: what is predicted, for the table.
        classes: whether the target is a class.
        clock: columns of times.
        categories: columns of categories.
    """

    where: tuple[str, str]
    what: str
    classes: bool = False
    clock: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()


PACKAGED = {
    "airline": Packaged(("river", "AirlinePassengers"), "passengers of the month", clock=("month",)),
    "bananas": Packaged(("river", "Bananas"), "one of two shapes, from the row", classes=True),
    "chick_weights": Packaged(("river", "ChickWeights"), "weight of a chicken, from the row"),
    "phishing": Packaged(("river", "Phishing"), "phishing or not, from the row", classes=True),
    "image_segments": Packaged(("river", "ImageSegments"), "one of seven surfaces, from the row", classes=True),
    "shuttle": Packaged(("river", "Shuttle"), "an anomaly or none, from the row", classes=True),
    "sp500": Packaged(("river", "SP500Stocks"), "the index at the end of the day"),
    "trump_approval": Packaged(("river", "TrumpApproval"), "approval, from the polls of the row"),
    "water_flow": Packaged(("river", "WaterFlow"), "flow of the hour", clock=("Time",)),
    "sunspots": Packaged(("statsmodels", "sunspots"), "sunspots of the year"),
    "co2": Packaged(("statsmodels", "co2"), "carbon dioxide of the week"),
    "nile": Packaged(("statsmodels", "nile"), "volume of the year"),
    "el_nino": Packaged(("statsmodels", "elnino"), "temperature of the sea in the month"),
}


def write(name, file):
    """Write the rows of a stream to an open file."""
    package, data = PACKAGED[name].where
    rows = list(_river(data) if package == "river" else _statsmodels(data))
    names = list(dict.fromkeys(column for x, _ in rows for column in x))
    out = csv.writer(file, lineterminator="\n")
    out.writerow([*names, "target"])
    for x, y in rows:
        out.writerow([*("" if x.get(column) is None else x[column] for column in names), "" if y is None else y])


def _river(data):
    from river import datasets

    for x, y in getattr(datasets, data)():
        x = {name: int(value) if isinstance(value, bool) else value for name, value in x.items()}
        yield {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in x.items()}, y


def _statsmodels(data):
    import math

    from statsmodels import datasets

    table = getattr(datasets, data).load_pandas().data
    if data == "elnino":  # a year a line, a month a column
        values = [value for year in table.itertuples(index=False) for value in year[1:]]
    else:
        values = table[{"sunspots": "SUNACTIVITY", "nile": "volume"}.get(data, data)].tolist()
    for i, value in enumerate(values):
        yield {"index": i}, None if math.isnan(value) else value
