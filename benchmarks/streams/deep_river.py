"""deep-river on the streams of `streams.py` and `reach.py`: same rows, delay and scores.

    # another river and torch: an environment of its own
    python3.11 -m venv deep && deep/bin/pip install deep-river pytest
    FORETRACE_DATA=... deep/bin/python -m benchmarks.streams.deep_river [--rows 20000] [--reach]
    FORETRACE_DATA=... deep/bin/python -m benchmarks.streams.deep_river --memory flipflop hold

It goes through a window of the last rows from a zero state at each step. The window is 10 rows, its
default; on the cues of `reach.py` a row without a label enters the window, too.
"""

import pickle
import tempfile
from functools import partial
from pathlib import Path

from benchmarks import ledger
from benchmarks.streams import cues, held, peers, rows

STREAMS, REACH = (
    ledger.RECORDS / "streams_deep_river.jsonl",
    ledger.RECORDS / "reach_deep_river.jsonl",
)
MEMORY = ledger.RECORDS / "memory.jsonl"
HIDDEN, RATE, WINDOW = 32, 1e-3, 10
KINDS = ("LSTM", "RNN")


def main():
    parser = ledger.parser(__doc__)
    parser.add_argument("--rows", type=int, default=20_000, help="first rows of each stream")
    parser.add_argument("--streams", nargs="+", choices=[*rows.GROUPS, *rows.ANY], default=["real"])
    parser.add_argument("--limit", type=float, default=600, help="CPU seconds for a cell")
    parser.add_argument(
        "--work", type=Path, default=Path(tempfile.gettempdir()) / "foretrace-streams"
    )
    parser.add_argument("--reach", action="store_true", help="the cues of reach.py instead")
    parser.add_argument(
        "--memory", nargs="+", choices=list(held.SPACING), help="streams of memory.py instead"
    )
    parser.add_argument(
        "--delays", type=int, nargs="+", default=[1000, 100, 20], help="of reach.py"
    )
    asked = parser.parse_args()
    kinds = [{"way": f"deep-river {kind}", "limit": asked.limit} for kind in KINDS]
    if asked.memory:
        cells = [
            {"stream": name, "method": kind["way"], "rows": asked.rows, "seed": 0, "stream_seed": 0}
            for name in asked.memory
            for kind in (*kinds, {"way": "deep-river GRU"})
            if "RNN" not in kind["way"]
        ]
        return ledger.each(MEMORY, cells, remember)
    if asked.reach:
        cells = [
            {"task": task, "delay": delay, "labels": labels, "seed": 0, **kind}
            for task, labels in cues.LABELS.items()
            for delay in asked.delays
            for kind in kinds
        ]
        return ledger.each(REACH, cells, reach)
    cells = [
        {"stream": name, "rows": asked.rows, **kind}
        for name in rows.names(asked.streams)
        for kind in kinds
    ]
    return ledger.each(STREAMS, cells, partial(measure, work=asked.work))


class Filled:
    """A rolling model of deep-river that gets every feature, scaled; absent is zero."""

    def __init__(self, way, names, classes, *, scale=True):
        import torch
        from deep_river import classification, regression
        from river import preprocessing

        torch.set_num_threads(1)

        self.names, self.classes = names, classes
        self.scaler = preprocessing.StandardScaler() if scale else None
        kind = way.removeprefix("deep-river ")
        options = {"lr": RATE, "optimizer_fn": "adam", "window_size": WINDOW}
        options["gradient_clip_value"] = 1.0
        if kind == "GRU":
            # The library has a window for any module, but no GRU of its own.
            options["module"] = gru(len(names), 2 if classes else 1)
            loss = {"loss_fn": "cross_entropy", "is_class_incremental": True}
            options |= loss if classes else {"loss_fn": "mse"}
            kind = "Rolling"
        else:
            options |= {"n_features": len(names), "hidden_size": HIDDEN}
        make = getattr(
            classification if classes else regression,
            kind + ("Classifier" if classes else "Regressor"),
        )
        self.model = make(**options)
        self.target = preprocessing.StandardScaler()

    def predict_one(self, x):
        """Return the model's prediction of a row."""
        x = self._filled(x)
        self.model._update_observed_features(x)
        said = self.model.predict_one(x)
        if self.classes or said is None:
            return said
        return float(said) * (self.target.vars["y"] ** 0.5 or 1.0) + self.target.means["y"]

    def learn_one(self, x, y):
        """Learn a row; a number in standard deviations."""
        if not self.classes:
            self.target.learn_one({"y": y})
            y = self.target.transform_one({"y": y})["y"]
        x = self._filled(x, learn=True)
        self.model.learn_one(x, y)

    def pass_by(self, x):
        """Let a row without a label enter the window."""
        x = self._filled(x)
        self.model._update_observed_features(x)
        self.model._x_window.append([x[name] for name in self.model.observed_features])

    def _filled(self, x, *, learn=False):
        x = {name: 0.0 if x.get(name) is None else x[name] for name in self.names}
        if self.scaler is None:
            return x
        if learn:
            self.scaler.learn_one(x)
        return self.scaler.transform_one(x)


def gru(features, outputs):
    """Return a GRU whose last state is read, as the library's own LSTM is."""
    import torch

    class Last(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.gru = torch.nn.GRU(features, HIDDEN)
            self.head = torch.nn.Linear(HIDDEN, outputs)

        def forward(self, x, **_):
            return self.head(self.gru(x)[1][-1])

    return Last()


def size(filled):
    """Return the bytes of parameters, optimiser and window."""
    model = filled.model
    return len(
        pickle.dumps(
            [model.module.state_dict(), model.optimizer.state_dict(), list(model._x_window)]
        )
    )


def measure(cell, work):
    """Return the scores on a real stream."""
    name = cell["stream"]
    stream, path = rows.ANY[name], rows.prepare(name, work)
    found = list(rows.read(name, path, cell["rows"]))
    previous = stream.previous and name not in rows.TEXTS
    model = Filled(cell["way"], peers.names_of(found, 0, previous), stream.classes)
    kind = {
        "count": len(found),
        "classes": stream.classes,
        "lags": 0,
        "delay": stream.delay,
        "previous": previous,
    }
    return peers.progressive(model, found, **kind, limit=cell["limit"], size=size)


def reach(cell):
    """Return the scores on a stream of cues."""
    stream = cues.make(cell["task"], cell["delay"], cell["labels"], cell["seed"])
    model = Filled(cell["way"], [f"x{j}" for j in range(stream[0].shape[1])], True, scale=False)
    kind = {"count": len(stream[0]), "classes": True, "lags": 0, "previous": False}
    return peers.progressive(model, cues.as_rows(*stream), **kind, limit=cell["limit"], size=size)


def remember(cell):
    """Return the scores on a stream of memory.py, of the whole and of the last 30 %."""
    xs, ys, classes = held.rows_of(cell["stream"], cell["stream_seed"], cell["rows"])
    each = held.SPACING[cell["stream"]]
    names = [f"x{k}" for k in range(xs.shape[1])]
    labels = [y if i % each == each - 1 else None for i, y in enumerate(ys.tolist())]
    found = zip((dict(zip(names, x, strict=True)) for x in xs.tolist()), labels, strict=True)
    model = Filled(cell["method"], names, classes)
    kind = {"count": len(xs), "classes": bool(classes), "lags": 0, "previous": False}
    scored = peers.progressive(model, found, **kind, size=size)
    unit = 100.0 if classes else 1.0
    return {
        "score": "accuracy" if classes else "error",
        "whole": round(unit * scored["accuracy" if classes else "mae"], 4),
        "last 30 %": round(unit * sum(scored["parts"][7:]) / 3, 4),
        "us a row": round(scored["cpu_us_per_row"], 1),
    }


if __name__ == "__main__":
    main()
