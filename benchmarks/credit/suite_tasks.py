"""The five tasks of the suite: streams of sequences, one network, and the scored steps.

Each function returns a `Task` for a seed. A batch of sequences is a function of its index, so that
nothing is stored.
"""

import gzip
import io
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import foretrace as ft
from benchmarks.networks import lru_network
from benchmarks.streams.sources import data
from foretrace.experiment import Copy


class Task(NamedTuple):
    """Interface of a task to the suite.

    Args:
        network: function that makes the network from a key.
        loss: loss of one step.
        streams: number of streams side by side.
        chunk: steps of a call; it divides the length.
        length: steps of a sequence.
        batch: function of an index that returns inputs, targets and weights of a batch, (streams,
            length, ...).
        score: function of the network and the losses along the way (ten parts) that returns the
            scores.
        joined: the next batch goes on where this one ends, without a reset.
    """

    network: Callable[[Any], ft.Network]
    loss: Callable
    streams: int
    chunk: int
    length: int
    batch: Callable[[int], tuple]
    score: Callable[[ft.Network, list], dict]
    joined: bool = False


def copy(seed):
    """Recall a pattern of bits after a silence."""
    task = Copy(pattern_length=12, padding=15, bits=4)
    streams, size, depth = 20, 32, 4
    test = task.batch(seed + 10_000, 0, 500)

    def score(network, parts):
        outputs, asked = predict(network, test.xs), test.mask > 0
        losses = jax.vmap(jax.vmap(task.loss))(outputs, test.ys)
        right = jax.vmap(jax.vmap(ft.losses.accuracy))(outputs, test.ys)
        cosine = {"example": (test.xs[:20], test.ys[:20], test.mask[:20])}
        found = {"loss": losses[asked].mean(), "accuracy": right[asked].mean()}
        return {name: float(value) for name, value in found.items()} | cosine

    draw = jax.jit(lambda index: task.batch(seed, index, streams))
    make = maker(task.input_size, task.output_size, size, depth)
    return Task(make, task.loss, streams, 8, task.length, draw, score)


def digits(seed):
    """Say which digit was spoken, from the waveform; the label comes with the last chunk."""
    frame, streams, chunk = 16, 10, 16
    length = 4096 // frame
    sounds, labels = recordings("train")
    test, answers = recordings("test")

    def steps(found):
        return found.reshape(len(found), length, frame)

    weights = np.zeros((streams, length), np.float32)
    weights[:, -chunk:] = 1 / chunk
    per_epoch = len(sounds) // streams

    def batch(index):
        epoch, at = divmod(index, per_epoch)
        order = np.random.default_rng([seed, epoch]).permutation(len(sounds))
        rows = order[at * streams : (at + 1) * streams]
        return steps(sounds[rows]), np.repeat(labels[rows, None], length, 1), weights

    def score(network, parts):
        logits = predict(network, steps(test))[:, -chunk:].mean(1)
        loss = jax.vmap(ft.losses.softmax_cross_entropy)(logits, answers).mean()
        return {"loss": float(loss), "accuracy": float((logits.argmax(-1) == answers).mean())}

    make = maker(frame, 10, 32, 2, r_min=0.9, r_max=0.999)
    return Task(make, ft.losses.softmax_cross_entropy, streams, chunk, length, batch, score)


def text(seed):
    """Predict the next byte of a book, in one stream."""
    length, chunk, size = 1024, 16, 64
    book = (data() / "streams" / "war_and_peace.txt.gz").read_bytes()
    found = np.frombuffer(gzip.decompress(book), np.uint8)

    def batch(index):
        part = found[index * length : (index + 1) * length + 1]
        return np.eye(256, dtype=np.float32)[part[None, :-1]], part[None, 1:].astype(np.int32), ones

    ones = np.full((1, length), 1 / chunk, np.float32)

    def score(network, parts):
        last, every = (part / np.log(2) for part in (parts[-1], float(np.mean(parts))))
        return {"bits_per_byte": last, "bits_per_byte_in_all": every}

    make = maker(256, 256, size, 2)
    loss = ft.losses.softmax_cross_entropy
    return Task(make, loss, 1, chunk, length, batch, score, joined=True)


def randman(seed):
    """Classify ten random manifolds of spike times, with integrate-and-fire units."""
    classes, units, length, dimensions, chunk = 10, 50, 50, 2, 10
    streams, size, depth = 32, 64, 3
    manifolds = np.random.default_rng([seed, 99]).uniform(size=(3, classes, units, dimensions, 100))

    def sample(draw, count):
        labels = draw.integers(0, classes, count)
        points = draw.uniform(size=(count, 1, dimensions, 1))
        amplitude, frequency, phase = manifolds[:, labels]
        order = np.arange(1, 101)
        # A smooth function for each unit: a product over the dimensions of Fourier series whose
        # terms fall as 1 / k^2.
        waves = np.sin(2 * np.pi * (order * points * frequency + phase))
        times = (amplitude / order**2 * waves).sum(-1).prod(-1)
        low, high = times.min(1, keepdims=True), times.max(1, keepdims=True)
        at = np.minimum((times - low) / (high - low) * length, length - 1).astype(int)
        xs = (np.arange(length)[:, None] == at[:, None]).astype(np.float32)
        ys = np.repeat(labels[:, None], length, 1).astype(np.int32)
        return xs, ys, np.full((count, length), 1 / length, np.float32)

    test = sample(np.random.default_rng([seed, 98]), 1000)

    def batch(index):
        return sample(np.random.default_rng([seed, index]), streams)

    def score(network, parts):
        logits = predict(network, test[0]).mean(1)
        loss = jax.vmap(ft.losses.softmax_cross_entropy)(logits, test[1][:, 0]).mean()
        right = float((logits.argmax(-1) == test[1][:, 0]).mean())
        example = tuple(leaf[:32] for leaf in test)
        return {"loss": float(loss), "accuracy": right, "example": example}

    cell = ft.LIF.factory(state_size=size, timescales=(5.0, 20.0))
    options = {"model_size": size, "depth": depth, "cell": cell, "glu": False, "norm": "none"}

    def make(key):
        return ft.Network(units, classes, key=key, **options)

    return Task(make, ft.losses.softmax_cross_entropy, streams, chunk, length, batch, score)


HORIZONS = 36
"""Predictions at every step: up to a second ahead, at 36 steps a second."""


def heart(seed):
    """Predict an electrocardiogram to a second ahead: 20 minutes to learn, ten to score."""
    size, length, chunk = 32, 720, 12
    signal = electrocardiogram()
    count, first = len(signal) - HORIZONS, 20 * 60 * HORIZONS
    signal = ((signal - signal[:first].mean()) / signal[:first].std()).astype(np.float32)
    ahead = np.stack([signal[h : count + h] for h in range(1, HORIZONS + 1)], 1)
    xs, ones = signal[:count, None], np.full((1, length), 1 / chunk, np.float32)
    scored = slice(first, None)

    def batch(index):
        at = index * length % first
        return xs[None, at : at + length], ahead[None, at : at + length], ones

    def nrmse(predicted):
        errors = np.sqrt(((predicted - ahead[scored]) ** 2).mean(0)) / signal[first:].std()
        found = {"nrmse": errors.mean(), "nrmse_first": errors[0], "nrmse_last": errors[-1]}
        return {name: float(error) for name, error in found.items()}

    def simple():
        lags = 3 * HORIZONS
        past = np.lib.stride_tricks.sliding_window_view(signal[:count], lags)
        past = np.concatenate([past, np.ones((len(past), 1))], 1)
        weights = np.linalg.lstsq(past[: first - lags + 1], ahead[lags - 1 : first], rcond=None)[0]
        last, linear = np.repeat(xs[scored], HORIZONS, 1), past[first - lags + 1 :] @ weights
        return {"last_value": nrmse(last), "linear": nrmse(linear)}

    def score(network, parts):
        return nrmse(np.asarray(predict(network, xs[None])[0])[scored]) | simple()

    make = maker(1, HORIZONS, size, 2)
    return Task(make, ft.losses.squared_error, 1, chunk, length, batch, score, joined=True)


TASKS = {"copy": copy, "digits": digits, "text": text, "randman": randman, "heart": heart}
BATCHES = {"copy": 1500, "digits": 810, "text": 250, "randman": 500, "heart": 180}
"""Batches of sequences that are learned from: three epochs of the digits, 8 % of the book."""


def maker(*sizes, **ring):
    """Return the function that makes a network of LRU layers from a key."""
    return lambda key: lru_network(*sizes, key=key, **ring)


def predict(network, xs):
    """Return the outputs for whole sequences."""
    return ft.forward(network, None, jnp.asarray(xs), keep_carry=False)[0]


@cache
def recordings(split):
    """Return the last 4,096 samples of each recording, silence in front, and the digits."""
    import soundfile  # pip install soundfile
    from pyarrow import parquet

    sounds, labels = [], []
    for path in sorted((data() / "fsdd").glob(f"{split}-*.parquet")):
        for row in parquet.read_table(path, columns=["audio", "label"]).to_pylist():
            sound = soundfile.read(io.BytesIO(row["audio"]["bytes"]), dtype="float32")[0][-4096:]
            sounds.append(np.pad(sound, (4096 - len(sound), 0)))
            labels.append(row["label"])
    # One constant brings the speech to about unit variance; a stream does not know the loudness of
    # what comes.
    return np.stack(sounds) / 0.06, np.array(labels, np.int32)


def electrocardiogram():
    """Return the first lead of record 100 of MIT-BIH, half an hour, 36 means a second."""
    from pyarrow import parquet

    table = parquet.read_table(data() / "streams" / "mitbih_100_signal.parquet", columns=["MLII"])
    return table["MLII"].to_numpy().reshape(-1, 10).mean(1)
