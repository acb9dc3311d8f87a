"""CPU time a row of a stream by both backends: `python -m benchmarks.engine.native_stream`.

Rows of examples/sensors.csv.gz are encoded, predicted and learned one by one, as a run does. Needs
a C compiler.
"""

import time
from itertools import islice

import numpy as np

from benchmarks import ledger
from foretrace.stream._config import StreamConfig
from foretrace.stream._in_c import NativeMixture
from foretrace.stream._model_config import ModelConfig
from foretrace.stream._plan import build, make_plan, open_source

MODELS = {
    "row and short": {"experts": ("row", "short")},
    "default mixture": {},
    "network tiny": {"size": "tiny"},
    "network small, exact": {"size": "small"},
    "default mixture and network small, exact": {
        "experts": (*ModelConfig().expert_names(), "network"), "depth": 2, "model_size": 32,
        "state_size": 32,
    },
}  # fmt: skip
TARGETS = {"number": ("temperature", ("reject",)), "class": ("reject", ())}
WARM, ROWS, ROUNDS = 30, 100, 7


def microseconds(intake, rows, target):
    """Return the least CPU time a row of some rounds."""
    state, best, rows = intake.mixture.packing.pack(intake.mixture.init()), float("inf"), iter(rows)
    for number in range(ROUNDS + 1):
        count = ROWS if number else WARM
        begin = time.process_time()
        for row, _ in islice(rows, count):
            state, mixed = intake.learn(state, [(row, row[target])])
            np.asarray(mixed.scores)
        if number:
            best = min(best, (time.process_time() - begin) / count)
    return round(1e6 * best, 1)


def measure(cell):
    """Return what a cell of the table holds."""
    source = str(ledger.ROOT / "examples" / "sensors.csv.gz")
    target, ignore = TARGETS[cell["target"]]
    model = ModelConfig(**MODELS[cell["model"]])
    config = StreamConfig(source, target, ignore=ignore, model=model)
    opened = open_source(config)
    rows = [*islice(opened.rows(), WARM + ROUNDS * ROWS)]
    plan = make_plan(config, opened, [row for row, _ in rows[:200]])
    found = {"jax, us": microseconds(build(config, plan), rows, target)}
    begin, intake = time.process_time(), build(config, plan)
    intake.mixture = NativeMixture(intake.mixture)
    found["traced, s"] = round(time.process_time() - begin, 1)
    found["native, us"] = microseconds(intake, rows, target)
    return found


def cells(models=MODELS, targets=TARGETS):
    """Return the cells."""
    return ledger.grid(model=models, target=targets)


if __name__ == "__main__":
    ledger.run(__doc__, "native_stream", cells, measure)
