"""Boards that others made, in their own protocol: river's, and CapyMOA's ElectricityTiny.

    FORETRACE_DATA=... python -m benchmarks.streams.boards [--only foretrace]
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

from benchmarks import ledger
from benchmarks.streams import peers
from benchmarks.streams.rows import ANY, read

RIVER = ("chick_weights", "trump_approval", "phishing", "image_segments", "bananas", "elec2")
OURS = {"foretrace": {}, "foretrace, without the last label": {"previous": False}}
TINY = 2000


def cells(board="river", streams=RIVER, limit=900):
    """Return the cells of a board.

    Args:
        board: river or CapyMOA.
        streams: streams of river's board.
        limit: CPU seconds for a learner of river's board.
    """
    if board == "CapyMOA":
        ways = [*OURS, *peers.capymoa_learners(True)]
        return ledger.grid(board=board, stream="ElectricityTiny", way=ways)
    found = []
    for name in streams:
        ways = [*OURS, *peers.river_models(ANY[name].classes)]
        found += ledger.grid(board=board, stream=name, way=ways, limit=limit)
    return found


def measure(cell):
    """Return the scores of a cell."""
    return (river if cell["board"] == "river" else capymoa)(cell)


def river(cell):
    """Return the scores on a stream of river's board."""
    from foretrace.stream import Classifier, Regressor

    name, way, classes = cell["stream"], cell["way"], ANY[cell["stream"]].classes
    found = list(read(name, 10**9))
    data = peers.Data(found, classes, len(found))
    if way in OURS:
        model = (Classifier if classes else Regressor)(**OURS[way])
    else:
        model = peers.river_models(classes)[way](data)
    return peers.progressive(model, data, cell["limit"])


def capymoa(cell):
    """Return the accuracy on CapyMOA's board."""
    import numpy as np
    from capymoa.base import Classifier
    from capymoa.evaluation import prequential_evaluation
    from capymoa.stream import NumpyStream

    from foretrace import stream

    class Ours(Classifier):
        """Our classifier as CapyMOA calls it."""

        def __init__(self, schema):
            super().__init__(schema)
            self.model = stream.Classifier(**OURS[cell["way"]])

        def train(self, instance):
            self.model.learn_one(dict(enumerate(instance.x)), instance.y_index)

        def predict_proba(self, instance):
            shares = self.model.predict_proba_one(dict(enumerate(instance.x)))
            of = [shares.get(label, 0.0) for label in range(self.schema.get_num_classes())]
            return np.array(of) if shares else None

    found = list(read("elec2", TINY))
    xs = np.array([list(x.values()) for x, _ in found])
    ys = np.array([int(y) for _, y in found])
    data = NumpyStream(xs, ys, target_type="categorical")
    make = peers.capymoa_learners(True).get(cell["way"], Ours)
    done = prequential_evaluation(data, make(schema=data.get_schema()), window_size=100)
    return {"accuracy": done.cumulative.accuracy() / 100, "rows": len(found)}


if __name__ == "__main__":
    ledger.run(__doc__, "boards", cells, measure)
