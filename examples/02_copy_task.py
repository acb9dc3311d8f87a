"""The copy task from Python: the same run as `foretrace train copy`, by default on a smaller task.

`--paper` trains the paper's network on the paper's task (a few minutes on two cores).
"""

import argparse
import tempfile
from pathlib import Path

from rich.console import Console

from foretrace import experiment
from foretrace.experiment import _report as report


def configuration(steps: int | None, paper: bool) -> experiment.Config:
    if paper:
        config = experiment.Config()
        return config if steps is None else experiment.Config(steps=steps)
    return experiment.Config(
        task=experiment.Copy(pattern_length=5, padding=2, bits=3),
        network=experiment.NetworkConfig(
            depth=2, model_size=32, cell=experiment.LRU(state_size=32)
        ),
        optimizer=experiment.OptimizerConfig(learning_rate=4e-3),
        steps=1000 if steps is None else steps,
        evaluate_every=250,
        align_every=250,
        checkpoint_every=250,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=None)
    parser.add_argument("--paper", action="store_true", help="the paper's task and network")
    parser.add_argument(
        "--run-dir", type=Path, default=None, help="a temporary directory if not given"
    )
    options = parser.parse_args()

    run_dir = options.run_dir or Path(tempfile.mkdtemp()) / "copy"
    result = experiment.train(configuration(options.steps, options.paper), run_dir)
    if result.scores is None:  # Ctrl-C
        print(f"stopped after step {result.step}; train(..., resume=True) goes on")
        return
    Console().print(report.table(run_dir))
    print(f"curves: {report.figure(run_dir)}")


if __name__ == "__main__":
    main()
