"""Which cells learn selective copying online: recall of symbols that are scattered among blanks, for each cell.

    python benchmarks/selective.py --runs runs/selective --output benchmarks/selective.json

Blocks of 64 features, fresh sequences, whole sequences under the paper's rule; each run is as `foretrace train
selective-copy` makes it, and goes on from its checkpoint if the script is started again. With one block, what the layer
keeps can depend on what is read by its own gates alone.
"""

import argparse
import dataclasses
import itertools
import json
from pathlib import Path

import jax

from foretrace import experiment
from foretrace.experiment._config import TASKS

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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    parser.add_argument("--rules", nargs="+", choices=RULES, default=["online"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--blocks", type=int, default=1)
    parser.add_argument("--span", type=int, default=128, help="steps among which they are scattered")
    parser.add_argument("--count", type=int, default=4, help="symbols to recall")
    parser.add_argument("--rates", nargs="+", type=float, default=[3e-3, 1e-2])
    asked = parser.parse_args()
    rows = json.loads(asked.output.read_text()) if asked.output.exists() else []
    for seed, rate, cell, rule in itertools.product(asked.seeds, asked.rates, asked.cells, asked.rules):
        setting = {"cell": cell, "rule": rule, "seed": seed, "steps": asked.steps}
        setting |= {"blocks": asked.blocks, "span": asked.span, "count": asked.count, "rate": rate}
        if any(row.items() >= setting.items() for row in rows):
            continue
        folder = asked.runs / "-".join(str(value) for value in setting.values())
        config = configuration(**setting)
        result = experiment.train(config, folder, resume=folder.exists())
        if (score := result.scores) is None:
            return
        row = setting | {"loss": float(score.loss), "symbols_recalled": float(score.accuracy)}
        row |= {"whole_sequences": float(score.sequences), "batch": config.batch_size}
        row |= {"scored_on": config.final_sequences, "jax": jax.__version__, "device": jax.devices()[0].device_kind}
        print(row, flush=True)
        rows.append(row)
        asked.output.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
