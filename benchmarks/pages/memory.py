"""`results/memory.md`: a learned memory beside untrained ones and other models."""

from operator import itemgetter
from statistics import mean

from benchmarks.pages.template import bold_best, grouped, records, table
from benchmarks.streams import rows

STREAMS = {
    "flipflop": "a bit, written by a conjunction",
    "toggle": "a bit, toggled by a conjunction",
    "alarm": "an alarm, set and acknowledged",
    "counter": "events counted modulo three",
    "tank": "the level of a tank, three classes",
    "keyed": "a key, shown now and then, chooses the weights",
    "far 20": "the digit of 20 rows before",
    "far 100": "the digit of 100 rows before",
    "far 500": "the digit of 500 rows before",
    "hold": "a number, stored by a conjunction",
    "switch": "a switch with two conditions",
    "gear": "a gear that moves up and down",
    "session": "a login that says which weights count",
    "heater": "a heater with two thresholds",
    "ema": "the mean of a product over 200 rows",
    "delayed": "values of 100 to 120 rows before",
}
ONCE = {
    "lock": "a lock: made ready, opened, shut; three classes",
    "slots": "two stored numbers, one of them asked for",
    "timer": "a light, on for 30 rows from a conjunction",
    "peak": "the largest value since a conjunction",
    "smooth": "two running means (nothing is held)",
    "drift": "weights that turn (nothing is held)",
}
HELD = {
    "dialogue": "War and Peace: is someone speaking?",
    "code": "Python's library: code, comment or text",
    "wind": "Beijing: the run of the wind since it turned",
}
REAL = {
    "elec2": "price of electricity (elec2)",
    "noaa_weather": "NOAA weather",
    "nab_taxi": "New York taxi",
    "ecg": "ECG, labels 18 rows late",
    "heart": "ECG, labels 72 rows late",
    "phishing": "phishing",
    "co2": "carbon dioxide",
    "sunspots": "sunspots",
    "el_nino": "El Niño",
    "nile": "Nile",
}
METHODS = {
    "learned": "learned",
    "frozen": "frozen",
    "frozen, 72": "frozen, 72",
    "reservoir 300": "reservoir",
    "one-step": "one-step",
    "no correction": "uncorrected",
    "adam": "Adam",
    "rmsprop": "RMSprop",
    "GRU 32": "GRU",
    "rolling 16": "rolling",
    "deep-river LSTM": "deep-river LSTM",
    "deep-river GRU": "deep-river GRU",
    "river linear": "river linear",
    "river ARF": "river ARF",
}
SHORT = {
    "learned": "learned",
    "frozen": "untrained",
    "reservoir 300": "reservoir, 300 numbers",
    "GRU 32": "GRU, 32 units",
}
UNSEEN = {name: one.what for name, one in rows.UNSEEN.items()}
GROUPS = {"made": STREAMS, "once": ONCE, "held": HELD, "real": REAL, "unseen": UNSEEN}
RATED = ("adam", "rmsprop", "GRU 32", "rolling 16")


def alone():
    """Return the scores of the last 30 %: a row a stream, a column a method."""
    lines = []
    for stream, name in (STREAMS | ONCE | HELD).items():
        better, runs = _runs(stream)
        values = [mean(runs[method]) if runs[method] else None for method in METHODS]
        shown = bold_best(values, lambda value, better=better: _shown(value, better), better)
        shown = [
            f"{score} ({len(found)})" if len(found) > 1 else score
            for score, found in zip(shown, runs.values(), strict=True)
        ]
        lines.append([_named(name, better is min), *shown])
    return table(["stream", *METHODS.values()], lines)


def held():
    """Return the table of `docs/second_order.md`: the same of the real streams, a few methods."""
    lines = []
    for stream, name in HELD.items():
        better, runs = _runs(stream)
        scores = [_shown(mean(runs[method]), better) for method in SHORT]
        lines.append([_named(name, better is min), *scores])
    return table(["stream", *SHORT.values()], lines)


def _runs(stream):
    """Return which of two scores of a stream is better, and the runs of each method."""
    mine = [line for line in records("memory") if line["cell"]["stream"] == stream]
    better = min if mine[0]["found"]["score"] == "error" else max
    rates = {method: {} for method in METHODS}
    for line in mine:
        said = line["cell"]["method"]
        method = said.rpartition(" ")[0] if said.rpartition(" ")[0] in RATED else said
        if method in rates:
            rates[method].setdefault(said, []).append(line["found"]["last 30 %"])
    return better, {
        method: better(found.values(), key=mean, default=[]) for method, found in rates.items()
    }


def mixture(group):
    """Return the scores of the default mixture without and with the experts that remember."""
    streams = GROUPS[group]
    scored = [line for line in records("guarded") if "whole" in line["found"]]
    found = grouped(scored, itemgetter("stream"))
    columns = [(part, who) for part in ("whole", "last 30 %") for who in ("without", "with")]
    alone = [("last 30 %", who) for who in ("memory", "reservoir", "distant")]
    lines = []
    for stream, name in streams.items():
        if runs := found.get(stream):
            better = min if runs[0]["score"] == "error" else max
            scores = [
                mean(one[part][who] for one in runs) if who in runs[0][part] else None
                for part, who in (*columns, *alone)
            ]
            shown = ["" if score is None else _shown(score, better) for score in scores]
            lines.append([_named(name, better is min), *shown])
    head = ["without", "with", "without, last 30 %", "with, last 30 %"]
    return table(["stream", *head, *(f"{who} alone" for _, who in alone)], lines)


def _named(name, down):
    return f"{name} ↓" if down else name


def _shown(value, better):
    return f"{value:.1f}" if better is max else f"{value:.3g}"
