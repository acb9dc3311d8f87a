"""Boards that others made, in their own protocol: river's, and CapyMOA's ElectricityTiny.

    FORETRACE_DATA=... python -m benchmarks.streams.boards [--board river] [--only foretrace]
    FORETRACE_DATA=... capymoa/bin/python -m benchmarks.streams.boards --board CapyMOA

Written down before the first run, and nothing is chosen by stream:

- *river*: the sets of its tracks that are at hand, whole and in order: Bananas, Phishing,
  ImageSegments, ChickWeights, TrumpApproval, and Electricity without the columns `date` and `day`
  of its Elec2. Each row is predicted, then learned; the label is known at once. A learner gets the
  row alone.
- *CapyMOA*: the 2,000 rows of ElectricityTiny by its own `prequential_evaluation`, its learners at
  their defaults, as its tests run them.
- Ours are `ft.stream.Classifier` and `Regressor` with nothing set, which remember rows and the last
  label by themselves; once more without the last label.
- A learner that takes more than --limit CPU seconds ends, and says after how many rows.

`published.jsonl` holds the scores that the authors of the boards publish.
"""

import tempfile
from pathlib import Path

from benchmarks import ledger
from benchmarks.streams import peers, rows

FILE = ledger.RECORDS / "boards.jsonl"
RIVER = ("chick_weights", "trump_approval", "phishing", "image_segments", "bananas", "elec2")
OURS = {"foretrace": {}, "foretrace, without the last label": {"previous": False}}
TINY = 2000


def main():
    parser = ledger.parser(__doc__)
    parser.add_argument("--board", choices=["river", "CapyMOA"], default="river")
    parser.add_argument("--streams", nargs="+", default=RIVER, help="of river's board")
    parser.add_argument("--only", nargs="+", default=[""], help="words in the name of a learner")
    parser.add_argument("--limit", type=float, default=900, help="CPU seconds for a learner")
    parser.add_argument(
        "--work", type=Path, default=Path(tempfile.gettempdir()) / "foretrace-streams"
    )
    asked = parser.parse_args()
    if asked.board == "river":
        cells = [
            {"board": "river", "stream": name, "way": way, "limit": asked.limit}
            for name in asked.streams
            for way in (*OURS, *peers.river_models(rows.ANY[name].classes))
        ]
    else:
        cells = [
            {"board": "CapyMOA", "stream": "ElectricityTiny", "way": way}
            for way in (*OURS, *peers.capymoa_models(True))
        ]
    cells = [cell for cell in cells if any(word in cell["way"] for word in asked.only)]
    ledger.each(FILE, cells, {"river": river, "CapyMOA": capymoa}[asked.board](asked.work))


def river(work):
    """Return the function that measures a cell of river's board."""
    from foretrace.stream import Classifier, Regressor

    def measure(cell):
        name, way = cell["stream"], cell["way"]
        classes = rows.ANY[name].classes
        found = list(rows.read(name, rows.prepare(name, work), 10**9))
        if way in OURS:
            model = (Classifier if classes else Regressor)(**OURS[way])
        else:
            model = peers.river_models(classes)[way]()
        kind = {"count": len(found), "classes": classes, "lags": 0, "previous": False}
        return peers.progressive(model, found, **kind, limit=cell["limit"])

    return measure


def capymoa(work):
    """Return the function that measures a cell of CapyMOA's board."""
    import numpy as np
    from capymoa.base import Classifier
    from capymoa.evaluation import prequential_evaluation
    from capymoa.stream import NumpyStream

    from foretrace import stream

    class Ours(Classifier):
        """Our classifier as CapyMOA calls it."""

        def __init__(self, schema, **options):
            super().__init__(schema)
            self.model = stream.Classifier(**options)

        def train(self, instance):
            self.model.learn_one(dict(enumerate(instance.x)), instance.y_index)

        def predict_proba(self, instance):
            shares = self.model.predict_proba_one(dict(enumerate(instance.x)))
            of = [shares.get(label, 0.0) for label in range(self.schema.get_num_classes())]
            return np.array(of) if shares else None

    found = list(rows.read("elec2", rows.prepare("elec2", work), TINY))
    xs = np.array([list(x.values()) for x, _ in found])
    ys = np.array([int(y) for _, y in found])

    def measure(cell):
        data, way = NumpyStream(xs, ys, target_type="categorical"), cell["way"]
        schema = data.get_schema()
        if way in OURS:
            model = Ours(schema, **OURS[way])
        else:
            model = peers.capymoa_models(True)[way](schema=schema)
        done = prequential_evaluation(data, model, window_size=100)
        return {"accuracy": done.cumulative.accuracy() / 100, "rows": len(found)}

    return measure


if __name__ == "__main__":
    main()
