"""Predictions, intervals and scores of small streams, as they were when they were frozen.

    python tests/stream/test_frozen.py

writes the file anew: only where a prediction changes on purpose, which the changelog then says.
"""

import datetime
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parents[1]))  # as a script
from tiers import fast, slow

from foretrace.stream.model.model_config import ModelConfig
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.run import follow

FILE = Path(__file__).with_name("frozen.json")
ROWS, EVERY = 240, 9
FEW = ModelConfig(experts=("baselines", "contexts", "lags"))
TINY = ModelConfig("small", depth=1, model_size=4, state_size=3)
NUMBERS = {"target": "y", "ignore": ("t", "c", "k", "who", "start", "empty"), "model": FEW}
CLASSES = {"target": "k", "ignore": ("t", "c", "y", "who", "start", "empty"), "model": FEW}

STREAMS = {
    "number": NUMBERS,
    "class": CLASSES,
    "late labels": NUMBERS | {"delay": 4},
    "late classes": CLASSES | {"delay": 4},
    "horizon": NUMBERS | {"horizon": 3, "delay": 1},
    "members": NUMBERS
    | {"member": "who", "members": 2, "delay": 2, "ignore": ("t", "c", "k", "start", "empty")},
    "resets": CLASSES | {"reset": "start", "delay": 2, "ignore": ("t", "c", "y", "who", "empty")},
    "text": {"model": ModelConfig(experts=("contexts", "lags"))},
    "categories, no value at first": CLASSES | {"ignore": ("t", "y", "who", "start")},
    "dates, irregular": NUMBERS | {"ignore": ("c", "k", "who", "start", "empty")},
    "mask": NUMBERS | {"outliers": "mask"},
    "stop": NUMBERS | {"outliers": "stop", "ignore": (*NUMBERS["ignore"], "a")},
    "numbers as they are": NUMBERS | {"model": ModelConfig(experts=("baselines", "raw"))},
    "memory": CLASSES | {"model": ModelConfig(experts=("baselines", "memory")), "delay": 1},
    "default": NUMBERS | {"model": ModelConfig()},
    "fast": NUMBERS | {"model": ModelConfig("fast"), "coverage": 0.8},
    "network, late": NUMBERS | {"model": TINY, "delay": 2, "horizon": 2},
    "network, late classes": CLASSES | {"model": TINY, "delay": 5},
    "no last label": NUMBERS | {"previous": False},
}
# Recursions of many steps multiply rounding; a network is in float32, and so is the memory, which
# is one of the experts of the default.
TOLERANCE = {"numbers as they are": 1e-5, "memory": 1e-2, "default": 1e-2, "fast": 1e-5}
TOLERANCE |= {"network, late": 1e-3, "network, late classes": 1e-3}
FIRST = {"numbers as they are": 160, "default": 160, "fast": 160}  # at the new level, by far
FIRST |= {"network, late": 99}  # behind the outlier, rounding decides by more than that


def table():
    """Return rows with numbers, categories, irregular dates, gaps, bad values and a new level."""
    draw, now, level = np.random.default_rng(0), datetime.datetime(2024, 1, 1), 0.0
    rows = []
    for i in range(ROWS):
        a, b = draw.normal(size=2)
        now += datetime.timedelta(seconds=float(60 * np.exp(draw.normal())))
        level = 400.0 if i == 170 else level
        y = 2 * a + b + level + 0.1 * draw.normal() + (rows[-1]["b"] if rows else 0)
        rows.append(
            {
                "t": f"{now:%Y-%m-%d %H:%M:%S}",
                "a": {40: "inf", 80: "900", 120: "NA"}.get(i, f"{a:.5f}"),
                "b": float(f"{b:.5f}"),
                "c": ["red", "green", "", "blue"][int(draw.integers(4))],
                "who": "xyxxz"[i % 5] if i > 60 else "xy"[i % 2],
                "start": int(i % 60 == 50),
                "empty": "" if i < 210 else "2.5",
                "y": "" if i % 53 == 52 else f"{30 * y if i == 100 else y:.5f}",
                "k": "" if i % 47 == 46 else "up" if y > level else "down" if i < 220 else "new",
            }
        )
    return rows


def write_files(folder):
    rows = table()
    lines = [",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]
    (folder / "a.csv").write_text("\n".join(lines) + "\n")
    (folder / "a.txt").write_text("the same again? - " * 13 + "and more")


def found(folder, name):
    """Return some predictions of a stream, with intervals or probabilities, and the result."""
    options, rows = STREAMS[name], []
    config = StreamConfig(str(folder / ("a.txt" if name == "text" else "a.csv")), **options)
    run = folder / name.replace(" ", "-")
    try:
        result = follow(
            config, run, rows=FIRST.get(name), show_progress=False, on_prediction=rows.append
        )
    except ValueError as error:
        return {"rows": [plain(row) for row in rows], "error": str(error)}
    scores = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    kept = ("scored", "counts", "experts", "weights", *result.scores)
    return {
        "rows": [plain(row) for row in rows[EVERY - 1 :: EVERY]],
        "result": {key: scores[key] for key in kept},
        "forecast": [plain(row) for row in result.forecast],
    }


def plain(row):
    return {key: value for key, value in row.items() if key not in ("row", "surprise")}


def differences(one, two, tolerance, where=""):
    """Return the places where two trees of numbers and words differ."""
    if isinstance(one, dict) and isinstance(two, dict) and one.keys() == two.keys():
        pairs = [(key, one[key], two[key]) for key in one]
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        pairs = [(i, *pair) for i, pair in enumerate(zip(one, two, strict=True))]
    elif isinstance(one, float) and isinstance(two, float | int):
        same = one == pytest.approx(two, rel=tolerance, abs=tolerance)
        return [] if same else [(where, one, two)]
    else:
        return [] if one == two else [(where, one, two)]
    return [line for key, a, b in pairs for line in differences(a, b, tolerance, f"{where}/{key}")]


REPEATED = ("class", "late labels", "late classes", "memory", "fast", "network, late")
"""Streams whose parts others have: `resets` late classes, `members` late numbers, `default` all but
a network, which `network, late classes` has.
"""
CASES = [slow(name) if name in REPEATED else name for name in STREAMS]


@pytest.mark.parametrize("name", fast(CASES))
def test_predictions_intervals_and_scores_are_those_that_were_frozen(files, name):
    now = json.loads(json.dumps(found(files, name)))
    lines = differences(json.loads(FILE.read_text())[name], now, TOLERANCE.get(name, 1e-9))
    assert not lines, f"{len(lines)} differ: {lines[:8]}"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        write_files(Path(made))
        chosen = sys.argv[1:] or list(STREAMS)
        kept = json.loads(FILE.read_text()) if FILE.exists() else {}
        kept |= {name: found(Path(made), name) for name in chosen}
        FILE.write_text(
            json.dumps(kept, indent=0).replace("\n", "").replace('}, "', '},\n"') + "\n"
        )
