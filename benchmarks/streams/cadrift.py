"""CaDrift's causal graphs (Barboza et al., ICLR 2026) with four kinds of drift.

    CADRIFT=FOLDER python -m benchmarks.streams.cadrift

`cadrift_rows.py` writes the folder. Written down before the first run of a learner:

- Ten graphs as the generator's own script builds them: 20 columns and two confounders, which are
  columns, too; classification; no interventions and no missing values. The first ten seeds from 0
  on whose label changes; the label of seeds 0 and 3 is constant.
- 4,000 rows each, in order. The mapping of a column changes at row 800 (real drift), the mean of a
  root at 1,600 (virtual), two classes change places at 2,400 (severe), and an earlier concept
  comes back at 3,200 (recurrent), all at once.
- Each row is predicted, then learned. The score is the accuracy over all rows.
- Ours is `ft.stream.Classifier` with nothing set, and with the size `fast`. Each learner of river
  gets the last label as an input, which ours remembers by itself. *last label* repeats this label.
"""

import csv
import os
from pathlib import Path

from benchmarks import ledger
from benchmarks.streams import peers

OURS = {"foretrace": {}, "foretrace, fast": {"size": "fast"}}
THEIRS = (
    "ARF",
    "SRP",
    "leveraging bagging",
    "Hoeffding adaptive tree",
    "nearest neighbours",
    "logistic regression",
)


def cells():
    """Return the cells, graph by graph."""
    if "CADRIFT" not in os.environ:
        raise SystemExit("name the folder that cadrift_rows.py has written: CADRIFT=FOLDER")
    graphs = sorted(int(path.stem) for path in Path(os.environ["CADRIFT"]).glob("*.csv"))
    ways = ["last label", *OURS, *(f"river {name}" for name in THEIRS)]
    return ledger.grid(board="CaDrift", stream="ten graphs", graph=graphs, way=ways)


def measure(cell):
    """Return the accuracy on a graph."""
    from river.dummy import NoChangeClassifier

    from foretrace.stream import Classifier

    way, rows = cell["way"], []
    for row in csv.DictReader((Path(os.environ["CADRIFT"]) / f"{cell['graph']}.csv").open()):
        label = int(float(row.pop("y")))
        rows.append(({name: float(value) for name, value in row.items()}, label))
    data = peers.Data(rows, True, len(rows), previous=way.startswith("river"))
    if way in OURS:
        model = Classifier(**OURS[way])
    else:
        model = NoChangeClassifier() if way == "last label" else peers.river_models(True)[way](data)
    return peers.progressive(model, data)


if __name__ == "__main__":
    ledger.run(__doc__, "boards", cells, measure)
