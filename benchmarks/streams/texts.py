"""Texts of tickets: the default beside river's bag of words with logistic regression.

    python -m benchmarks.streams.texts [--streams tickets ...] [--seeds 1]

Made tickets of 4,000 rows; hashing, scale and rates of the expert `words` were chosen on seed 0. In
each text some words point to the class, with noise; of `subjects` and `hours`, a number beside the
text counts, too. Each row is predicted before its label is known. river has the rates .01 (its
default) and .1, and multinomial naive Bayes on the words alone.
"""

import random
import re
import tempfile

import numpy as np

from benchmarks import ledger

ROWS = 4000
FILL = (
    "please could you have a look at this as soon as possible thanks in advance the a we i our my "
    "is are since yesterday this morning on floor two three four in room building it does not "
    "after before update new old again still since monday regards hello dear team and or with for "
    "to of some every all user users colleague office desk today week"
).split()
THING = (
    "printer laptop screen mouse keyboard phone router server mailbox calendar account password "
    "licence browser scanner projector badge door invoice order contract form report website "
    "database backup folder file drive camera headset"
).split()
PROBLEM = (
    *("is slow", "does not start", "shows an error", "is broken", "is missing"),
    *("needs a new part", "cannot be opened", "was locked", "is very loud", "freezes"),
)
URGENT = (
    "outage down nobody production customers waiting blocked security breach immediately lost "
    "stopped smoke fire leak"
).split()
CALM = (
    "question wish idea request whenever info suggestion holiday training colour moving farewell"
).split()
TOPICS = {"billing": 0.4, "network": 0.25, "hardware": 0.15, "account": 0.12, "other": 0.08}


def named(letter, count):
    """Return made words of letters alone."""
    return [letter + "".join(chr(97 + int(c)) for c in f"{j:04d}") for j in range(count)]


def drawn(draw, words, count):
    """Return words, the first ones by far the most frequent."""
    places = (int(draw.paretovariate(0.7)) - 1 for _ in range(count))
    return [words[min(place, len(words) - 1)] for place in places]


def tickets(draw):
    """Return a ticket, 19 % of which are urgent, by at most two of its words."""
    urgent = draw.random() < 0.19
    text = [draw.choice(THING), draw.choice(PROBLEM)]
    for _ in range(2):
        if draw.random() < 0.6:
            text.append(draw.choice(URGENT if draw.random() < (0.75 if urgent else 0.2) else CALM))
    text += [draw.choice(FILL) for _ in range(draw.randint(2, 10))]
    draw.shuffle(text)
    row = {
        "hour": draw.randint(0, 23),
        "channel": draw.choice(["mail", "phone", "portal"]),
        "tier": draw.choice(["gold", "silver", "basic"]),
    }
    return row, " ".join(text).capitalize() + ".", "urgent" if urgent else "normal"


def queues(draw):
    """Return a ticket of one of five queues, by at most three words of its topic or another."""
    queue = draw.choices(list(TOPICS), TOPICS.values())[0]
    text = drawn(draw, named("w", 1500), draw.randint(6, 25))
    for _ in range(draw.choice([0, 1, 1, 2, 3])):
        topic = queue if draw.random() < 0.8 else draw.choice(list(TOPICS))
        text.append(f"{topic}{chr(97 + draw.randrange(25))}")
    draw.shuffle(text)
    return {"minutes": round(draw.lognormvariate(2, 1), 1)}, " ".join(text), queue


def hours(draw):
    """Return a subject of three to six words, and a sum of their weights and of a number."""
    fixed, words = random.Random(1), named("v", 300)
    weights = {word: fixed.gauss(0, 1) * (fixed.random() < 0.3) for word in words}
    text, x = drawn(draw, words, draw.randint(3, 6)), draw.gauss(0, 1)
    y = sum(weights[word] for word in text) + x + draw.gauss(0, 0.7)
    return {"x": round(x, 3)}, " ".join(text), round(y, 3)


def subjects(draw):
    """Return the same, and whether the sum is large."""
    row, text, y = hours(draw)
    return row, text, "late" if y > 0.8 else "in time"


STREAMS = {one.__name__: one for one in (tickets, queues, subjects, hours)}


def ours(rows, **options):
    """Return predictions of a run: numbers, or probabilities."""
    import pandas as pd

    from foretrace.stream import run

    found, frame = [], pd.DataFrame([row | {"text": text, "y": y} for row, text, y in rows])
    with tempfile.TemporaryDirectory() as folder:
        run(frame, f"{folder}/run", target="y", on_prediction=found.append, **options)
    return [one.get("probabilities", one["y"]) for one in found]


def river(rows, model, *, words_alone=False):
    """Return predictions of a model of river behind a bag of words."""
    from river import compose, feature_extraction, preprocessing

    kinds = {name: isinstance(value, str) for name, value in rows[0][0].items()}
    texts, numbers = ([n for n, is_text in kinds.items() if is_text is k] for k in (True, False))
    parts = feature_extraction.BagOfWords(on="text")
    if numbers and not words_alone:
        parts += compose.Select(*numbers) | preprocessing.StandardScaler()
    if texts and not words_alone:
        parts += compose.Select(*texts) | preprocessing.OneHotEncoder()
    model, out, names = parts | model, [], sorted({y for *_, y in rows})
    for row, text, y in rows:
        x = row | {"text": text}
        if isinstance(y, float):
            out.append(model.predict_one(x))
        elif len(names) == 2:  # logistic regression takes truth values
            y, share = y == names[1], model.predict_proba_one(x).get(True, 0.5)
            out.append({names[0]: 1 - share, names[1]: share})
        else:
            out.append(model.predict_proba_one(x))
        model.learn_one(x, y)
    return out


def scores(labels, found):
    """Return the mean absolute error, or accuracy, log loss and mean area under the curve."""
    if isinstance(labels[0], float):
        return {"mae": float(np.mean(np.abs(np.subtract(labels, found))))}
    from sklearn.metrics import roc_auc_score

    classes = sorted({*labels})
    shares = np.array([[one.get(name, 0.0) for name in classes] for one in found])
    own = shares[range(len(labels)), [classes.index(label) for label in labels]]
    areas = [
        roc_auc_score([label == name for label in labels], shares[:, i])
        for i, name in enumerate(classes)
    ]
    right = [one and max(one, key=one.get) == y for one, y in zip(found, labels, strict=True)]
    return {
        "accuracy": float(np.mean([bool(one) for one in right])),
        "log loss": float(-np.log(np.maximum(own, 1e-15))[1:].mean()),
        "auc": float(np.mean(areas)),
    }


def measure(cell):
    """Return the scores of each model."""
    from river import linear_model, naive_bayes, optim

    draw = random.Random(cell["seed"])
    rows = [STREAMS[cell["stream"]](draw) for _ in range(ROWS)]
    labels = [y for *_, y in rows]
    found = {"foretrace": ours(rows), "foretrace, words=0": ours(rows, words=0)}
    kind = {2: linear_model.LogisticRegression, 5: linear_model.SoftmaxRegression}
    make = kind.get(len({*labels}), linear_model.LinearRegression)
    for rate in (0.01, 0.1):
        found[f"river, rate {rate:g}"] = river(rows, make(optim.SGD(rate)))
    if make is not linear_model.LinearRegression:
        found["river, naive Bayes"] = river(rows, naive_bayes.MultinomialNB(), words_alone=True)
    words = np.mean([len(re.findall(r"\w+", text)) for _, text, _ in rows])
    return {"words": float(words)} | {name: scores(labels, one) for name, one in found.items()}


def cells(streams=(*STREAMS,), seeds=(1,)):
    """Return the cells."""
    return ledger.grid(seed=seeds, stream=streams)


if __name__ == "__main__":
    ledger.run(__doc__, "texts", cells, measure)
