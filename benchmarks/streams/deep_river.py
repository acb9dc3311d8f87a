"""deep-river's models behind `predict_one` and `learn_one`, as peers of `real`, `reach`, `memory`.

    # another river and torch: an environment of its own
    python3.11 -m venv deep && deep/bin/pip install deep-river pytest .
    FORETRACE_DATA=... deep/bin/python -m benchmarks.streams.real --only deep-river
    deep/bin/python -m benchmarks.streams.reach --only deep-river
    FORETRACE_DATA=... deep/bin/python -m benchmarks.streams.memory --methods "deep-river LSTM"

A model goes through a window of the last rows from a zero state at each step. The window is 10
rows, its default; on the cues of `reach` a row without a label enters the window, too.
"""

import pickle

HIDDEN, RATE, WINDOW = 32, 1e-3, 10
KINDS = ("LSTM", "RNN")


class Filled:
    """A rolling model of deep-river that gets every feature, scaled; absent is zero."""

    def __init__(self, kind, names, classes, *, scale=True):
        import torch
        from deep_river import classification, regression
        from river import preprocessing

        torch.set_num_threads(1)
        self.names, self.classes = names, classes
        self.scaler = preprocessing.StandardScaler() if scale else None
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
        module, end = (classification, "Classifier") if classes else (regression, "Regressor")
        self.model = getattr(module, kind + end)(**options)
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

    def size(self):
        """Return the bytes of parameters, optimiser and window."""
        kept = [part.state_dict() for part in (self.model.module, self.model.optimizer)]
        return len(pickle.dumps([*kept, list(self.model._x_window)]))

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
