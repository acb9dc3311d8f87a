"""Which cells learn selective copying online: recall of symbols that are scattered among blanks, for each cell.

    python benchmarks/selective.py --runs runs/selective --output benchmarks/selective.json

Two blocks of 64 features, fresh sequences, whole sequences under the paper's rule; each run is as `foretrace train
selective-copy` makes it, and goes on from its checkpoint if the script is started again.
"""

import argparse
import dataclasses
import json
from pathlib import Path

import jax

from foretrace import experiment
from foretrace._config import TASKS

CELLS = {
    "LRU": experiment.LRU(64),
    "S5": experiment.S5(64),
    "MinGRU": experiment.MinGRU(),
    "RGLRU": experiment.RGLRU(),
    "SelectiveSSM": experiment.SelectiveSSM(8),
}
RULES = ("online", "bptt")


def configuration(cell, rule, seed, steps):
    """Return the configuration of a run."""
    start = TASKS["selective-copy"]
    network = dataclasses.replace(start.network, cell=CELLS[cell])
    optimizer = dataclasses.replace(start.optimizer, learning_rate=3e-3)
    return dataclasses.replace(
        start,
        network=network,
        optimizer=optimizer,
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
    parser.add_argument("--steps", type=int, default=4000)
    asked = parser.parse_args()
    rows = json.loads(asked.output.read_text())["rows"] if asked.output.exists() else []
    done = {(row["cell"], row["rule"], row["seed"], row["steps"]) for row in rows}
    for seed in asked.seeds:
        for cell, rule in ((cell, rule) for rule in asked.rules for cell in asked.cells):
            if (cell, rule, seed, asked.steps) in done:
                continue
            folder = asked.runs / f"{cell}-{rule}-{seed}-{asked.steps}"
            config = configuration(cell, rule, seed, asked.steps)
            result = experiment.train(config, folder, resume=folder.exists())
            if (score := result.scores) is None:
                return
            row = {"cell": cell, "rule": rule, "seed": seed, "steps": asked.steps, "loss": float(score.loss)}
            row |= {"symbols_recalled": float(score.accuracy), "whole_sequences": float(score.sequences)}
            rows.append(row)
            print(row, flush=True)
            setting = {"task": repr(config.task), "network": "2 blocks of 64", "rate": 3e-3, "batch": config.batch_size}
            setting |= {"scored_on": f"{config.final_sequences} new sequences", "jax": jax.__version__}
            setting |= {"device": jax.devices()[0].device_kind}
            asked.output.write_text(json.dumps({"setting": setting, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
