"""CPU time a row of a stream by both backends: `python -m benchmarks.engine.native_stream`.

Rows of examples/sensors.csv.gz are encoded, predicted and learned one by one, as a run does. Needs
a C compiler.
"""

import time
from itertools import islice
from pathlib import Path

import numpy as np

from benchmarks import ledger
from foretrace.stream._config import StreamConfig
from foretrace.stream._in_c import NativeMixture
from foretrace.stream._model_config import ModelConfig
from foretrace.stream._plan import build, make_plan, open_source
from foretrace.stream._saved import first_state

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
    state, best, rows = first_state(intake.mixture), float("inf"), iter(rows)
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
    source = str(Path(__file__).parents[2] / "examples" / "sensors.csv.gz")
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


if __name__ == "__main__":
    parser = ledger.parser(__doc__)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--targets", nargs="*", default=list(TARGETS))
    parser.add_argument("--records", type=Path, default=ledger.RECORDS / "native_stream.jsonl")
    given = parser.parse_args()
    cells = [{"model": m, "target": t} for m in given.models for t in given.targets]
    ledger.each(given.records, cells, measure)
    columns = ("jax, us", "native, us", "traced, s")
    ledger.print_table(ledger.read(given.records), ("model", "target"), columns)
