"""The same rows for every peer: progressive validation, late labels, the models of libraries."""

import importlib.util
import math
import pickle
import time
from collections import deque
from typing import Any, NamedTuple

from benchmarks.streams import deep_river


class Lags:
    """Inputs of a row and of the rows before, and the last known label.

    Args:
        rows: rows before that are seen, too.
        previous: give the last known label.
    """

    def __init__(self, rows, previous):
        self.previous, self.last = previous, None
        self.before = deque(maxlen=rows)

    def pass_by(self, x):
        """Take a row whose features nobody asks for."""
        self.before.appendleft({name: value for name, value in x.items() if value is not None})

    def __call__(self, x):
        """Return the features of the next row; missing ones are left out."""
        x = {name: value for name, value in x.items() if value is not None}
        out = dict(x)
        for i, row in enumerate(self.before, 1):
            out |= {f"{name} -{i}": value for name, value in row.items()}
        if self.previous and self.last is not None:
            number = isinstance(self.last, float)
            out |= {"last": self.last} if number else {f"last is {self.last}": 1.0}
        self.before.appendleft(x)
        return out


class Data(NamedTuple):
    """Rows for a peer.

    Args:
        rows: pairs of inputs and label, None if there is none.
        classes: whether labels are classes.
        count: number of the rows, for the parts of the score.
        lags: rows before that are features, too.
        delay: rows after which a label is known.
        previous: give the last known label.
        season: rows of a season.
    """

    rows: Any
    classes: bool
    count: int
    lags: int = 0
    delay: int = 0
    previous: bool = False
    season: int = 24

    def names(self):
        """Return the sorted names of all features that a peer sees in some rows."""
        look, names = Lags(self.lags, self.previous), {}
        for x, y in self.rows:
            names |= dict.fromkeys(look(x))
            look.last = y if y is not None else look.last
        return sorted(names)

    def labels(self):
        """Return the sorted classes; none for numbers."""
        return sorted({y for _, y in self.rows if y is not None}) if self.classes else []


def progressive(model, data, limit=None):
    """Predict each row, score it, and learn from it when its label has come.

    Args:
        model: with `predict_one` and `learn_one`, `pass_by` if it is to see rows without a label,
            and `size` if its bytes are not those of its pickle.
        data: rows.
        limit: CPU seconds after which the rest is left.
    """
    look, scores = Lags(data.lags, data.previous), []
    waiting, began = deque(), time.process_time()
    for x, y in data.rows:
        if y is None:
            features = look.pass_by(x)
            getattr(model, "pass_by", lambda x: None)(x)
            scores.append(None)
        else:
            features = look(x)
            said = model.predict_one(features)
            # No prediction is wrong, or zero.
            scores.append(float(said == y) if data.classes else abs((said or 0.0) - y))
        waiting.append((features, y))
        if len(waiting) > data.delay:
            features, y = waiting.popleft()
            if y is not None:
                model.learn_one(features, y)
                look.last = y
        if limit is not None and time.process_time() - began > limit:
            break
    seconds, done, length = time.process_time() - began, len(scores), max(data.count // 10, 1)
    kept = model.size() if callable(getattr(model, "size", None)) else len(pickle.dumps(model))
    return {
        "accuracy" if data.classes else "mae": _mean(scores) or 0.0,
        "parts": [_mean(scores[i : i + length]) for i in range(0, done - length + 1, length)],
        "rows": done,
        "scored": sum(score is not None for score in scores),
        "cpu_us_per_row": 1e6 * seconds / max(done, 1),
        "state_kib": kept / 2**10,
    }


def _mean(scores):
    """Return the mean of the scores that are there; None if there is none."""
    known = [score for score in scores if score is not None]
    return sum(known) / len(known) if known else None


class Scaled:
    """A model that gets numbers in standard deviations, and indicators (`... is ...`) as they are.

    River's scaler would turn an indicator that is there only when it is one into zero.
    """

    def __init__(self, model):
        from river import preprocessing

        self.model, self.scaler = model, preprocessing.StandardScaler()

    def predict_one(self, x):
        """Return the model's prediction."""
        return self.model.predict_one(self._scaled(x))

    def learn_one(self, x, y):
        """Learn the scale, and the row."""
        self.scaler.learn_one(self._parts(x)[0])
        self.model.learn_one(self._scaled(x), y)

    def _scaled(self, x):
        numbers, indicators = self._parts(x)
        return self.scaler.transform_one(numbers) | indicators

    def _parts(self, x):
        indicators = {name: value for name, value in x.items() if "is " in name}
        return {name: value for name, value in x.items() if name not in indicators}, indicators


class FromLabels:
    """A time series model that sees labels alone and forecasts as far as labels are late."""

    def __init__(self, model, delay):
        self.model, self.delay, self.learned = model, delay, 0

    def predict_one(self, x):
        """Return the forecast of the row's label; None before the model has begun."""
        try:
            return self.model.forecast(horizon=self.delay + 1)[-1] if self.learned else None
        except (IndexError, ValueError, ZeroDivisionError):  # before its first season is whole
            return None

    def learn_one(self, x, y):
        """Learn the label."""
        self.model.learn_one(y)
        self.learned += 1


def models(classes):
    """Return makers of the models of all installed libraries by name, functions of the `Data`."""
    kinds = (river_models, series_models, capymoa_models, deep_river_models)
    return {name: make for kind in kinds for name, make in kind(classes).items()}


def river_models(classes):
    """Return makers of river's models by name, at documented defaults.

    ALMA, AMF, leveraging bagging and stacking as in river's own `docs/benchmarks`.
    """
    from river import ensemble, forest, linear_model, multiclass, neighbors, optim, tree
    from river.naive_bayes import GaussianNB
    from river.preprocessing import StandardScaler

    if classes:
        hoeffding = tree.HoeffdingTreeClassifier

        def four():
            softmax, nearest = linear_model.SoftmaxRegression(), neighbors.KNNClassifier()
            scaled = [StandardScaler() | model for model in (softmax, nearest)]
            return [*scaled, GaussianNB(), hoeffding()]

        found = {
            # Of two classes, each against the other is ALMA itself.
            "ALMA": lambda: Scaled(multiclass.OneVsRestClassifier(linear_model.ALMAClassifier())),
            "AMF": lambda: forest.AMFClassifier(seed=0),
            "leveraging bagging": lambda: ensemble.LeveragingBaggingClassifier(hoeffding(), seed=0),
            "stacking": lambda: ensemble.StackingClassifier(four(), forest.ARFClassifier(seed=0)),
            "ARF": lambda: forest.ARFClassifier(seed=0),
            "SRP": lambda: ensemble.SRPClassifier(seed=0),
            "Hoeffding adaptive tree": lambda: tree.HoeffdingAdaptiveTreeClassifier(seed=0),
            "nearest neighbours": lambda: Scaled(neighbors.KNNClassifier()),
            "logistic regression": lambda: Scaled(linear_model.SoftmaxRegression(optim.SGD(0.01))),
        }
    else:
        # Their leaves hold linear models, which diverge on numbers of every size.
        hoeffding = tree.HoeffdingAdaptiveTreeRegressor
        found = {
            "AMF": lambda: forest.AMFRegressor(seed=0),
            "ARF": lambda: Scaled(forest.ARFRegressor(seed=0)),
            "SRP": lambda: Scaled(ensemble.SRPRegressor(seed=0)),
            "Hoeffding adaptive tree": lambda: Scaled(hoeffding(seed=0)),
            "nearest neighbours": lambda: Scaled(neighbors.KNNRegressor()),
            "linear regression": lambda: Scaled(linear_model.LinearRegression(optim.SGD(0.001))),
            "Bayesian linear regression": lambda: Scaled(linear_model.BayesianLinearRegression()),
        }
    return {f"river {name}": lambda data, make=make: make() for name, make in found.items()}


def series_models(classes):
    """Return makers of river's models of numeric labels alone, with the numbers of its guide."""
    from river import time_series

    if classes:
        return {}
    snarimax, smoothing = {"p": 1, "d": 0, "q": 0, "sp": 3, "sq": 6}, (0.3, 0.1, 0.6)
    return {
        "river SNARIMAX": lambda data: FromLabels(
            time_series.SNARIMAX(m=data.season, **snarimax), data.delay
        ),
        "river Holt-Winters": lambda data: FromLabels(
            time_series.HoltWinters(*smoothing, seasonality=data.season), data.delay
        ),
    }


def capymoa_learners(classes):
    """Return CapyMOA's learners (MOA, in Java) by name, if it is installed."""
    if not importlib.util.find_spec("capymoa"):
        return {}
    from capymoa import classifier, regressor

    if classes:
        found = {
            "SRP": classifier.StreamingRandomPatches,
            "ARF": classifier.AdaptiveRandomForestClassifier,
            "SGBT": classifier.StreamingGradientBoostedTrees,
            "SAMkNN": classifier.SAMkNN,
            "OzaBoost": classifier.OzaBoost,
            "HAT": classifier.HoeffdingAdaptiveTree,
        }
    else:
        found = {
            "SOKNL": regressor.SOKNL,
            "ARF": regressor.AdaptiveRandomForestRegressor,
            "SGBR": regressor.StreamingGradientBoostedRegression,
            "nearest neighbours": regressor.KNNRegressor,
            "FIMT-DD": regressor.FIMTDD,
        }
    return {f"CapyMOA {name}": learner for name, learner in found.items()}


def capymoa_models(classes):
    """Return makers of CapyMOA's learners at their defaults."""
    return {
        name: lambda data, learner=learner: Schema(learner, data.names(), data.labels())
        for name, learner in capymoa_learners(classes).items()
    }


class Schema:
    """A learner of CapyMOA behind `predict_one` and `learn_one`.

    Absent numbers are missing, and absent indicators (`... is ...`) zero.

    Args:
        make: maker of the learner.
        names: features of all rows, which its schema asks for before the first row.
        labels: the classes, for the same reason; none for numbers.
    """

    def __init__(self, make, names, labels):
        from capymoa.stream import Schema

        self.names, self.labels = names, labels
        kinds = {"target": list(map(str, range(len(labels))))} if labels else {}
        columns = [f"x{k}" for k in range(len(names))]
        self.schema = Schema.from_custom([*columns, "target"], "target", kinds)
        self.model = make(schema=self.schema)

    def predict_one(self, x):
        """Return the learner's prediction; None before it has one."""
        from capymoa.core import Instance

        said = self.model.predict(Instance.from_array(self.schema, self._array(x)))
        return said if said is None or not self.labels else self.labels[said]

    def learn_one(self, x, y):
        """Learn a row."""
        from capymoa.core import LabeledInstance, RegressionInstance

        kind = LabeledInstance if self.labels else RegressionInstance
        y = self.labels.index(y) if self.labels else y
        self.model.train(kind.from_array(self.schema, self._array(x), y))

    def size(self):
        """Return nothing: Java does not say."""
        return 0

    def _array(self, x):
        import numpy as np

        return np.array([x.get(n, 0.0 if "is " in n else math.nan) for n in self.names])


def deep_river_models(classes):
    """Return makers of deep-river's models, if it is installed."""
    kinds = deep_river.KINDS if importlib.util.find_spec("deep_river") else ()
    return {
        f"deep-river {kind}": lambda data, kind=kind: deep_river.Filled(kind, data.names(), classes)
        for kind in kinds
    }


def record_of(name):
    """Return a function of a cell that returns its record: deep-river's cells have their own."""
    return lambda cell: f"{name}_deep_river" if cell["way"].startswith("deep-river") else name
