"""Which cells learn selective copying online: recall of symbols that are scattered among blanks, for each cell.

    python -m benchmarks.credit.selective

Blocks of 64 features, fresh sequences, whole sequences under the paper's rule; each run is as `foretrace train
selective-copy` makes it, and goes on from its checkpoint if the script is started again. With one block, what the layer
keeps can depend on what is read by its own gates alone.
"""

import dataclasses
import itertools
from functools import partial
from pathlib import Path

from benchmarks import ledger
from foretrace import experiment
from foretrace.experiment._config import TASKS

FILE = ledger.RECORDS / "selective.jsonl"
CELLS = {
    "LRU": experiment.LRU(64),
    "S5": experiment.S5(64),
    "MinGRU": experiment.MinGRU(),
    "RGLRU": experiment.RGLRU(),
    "SelectiveSSM": experiment.SelectiveSSM(8),
}
RULES = ("online", "bptt")


def configuration(cell, rule, seed, steps, blocks, span, count, rate):
    """Return the configuration of a run."""
    start = TASKS["selective-copy"]
    return dataclasses.replace(
        start,
        task=dataclasses.replace(start.task, span=span, count=count),
        network=dataclasses.replace(start.network, cell=CELLS[cell], depth=blocks),
        optimizer=dataclasses.replace(start.optimizer, learning_rate=rate),
        rule=rule,
        seed=seed,
        steps=steps,
        batch_size=32,
        evaluate_every=500,
        align_every=None,
        validation_sequences=200,
    )


def measure(cell, runs):
    """Train, or go on with a run that was stopped; return the scores at its end."""
    folder = runs / "-".join(str(value) for value in cell.values())
    config = configuration(**cell)
    score = experiment.train(config, folder, resume=folder.exists()).scores
    if score is None:
        raise SystemExit("stopped; the same command continues")
    found = {"loss": float(score.loss), "symbols_recalled": float(score.accuracy)}
    found |= {"whole_sequences": float(score.sequences), "batch": config.batch_size}
    return found | {"scored_on": config.final_sequences}


def main():
    parser = ledger.parser(__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/selective"), help="folder of the runs")
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    parser.add_argument("--rules", nargs="+", choices=RULES, default=["online"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--blocks", type=int, default=1)
    parser.add_argument("--span", type=int, default=128, help="steps among which they are scattered")
    parser.add_argument("--count", type=int, default=4, help="symbols to recall")
    parser.add_argument("--rates", nargs="+", type=float, default=[3e-3, 1e-2])
    asked = parser.parse_args()
    cells = [
        {"cell": cell, "rule": rule, "seed": seed, "steps": asked.steps, "blocks": asked.blocks}
        | {"span": asked.span, "count": asked.count, "rate": rate}
        for seed, rate, cell, rule in itertools.product(asked.seeds, asked.rates, asked.cells, asked.rules)
    ]
    ledger.each(FILE, cells, partial(measure, runs=asked.runs))


if __name__ == "__main__":
    main()
