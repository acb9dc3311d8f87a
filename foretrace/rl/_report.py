"""What a run of an agent says of itself: a table and a figure, made from its records alone."""

import os
from pathlib import Path
from typing import Any

from foretrace._engine.carry import carry_size
from foretrace._network import parameter_count
from foretrace._runs.directory import Run, RunError
from foretrace._runs.figures import new_page, page_as_png
from foretrace._runs.files import write_atomically
from foretrace._runs.metrics import read_metrics
from foretrace.rl._config import RLConfig
from foretrace.rl._program import build
from foretrace.rl._run import LAST, read_config, result_of
from foretrace.rl._series import Series

CONTENTS = {
    "config.json": "what was run, with versions and hardware",
    "metrics.jsonl": "return, errors and norms of traces, a line each",
    "checkpoint.safetensors": "agent, environments and progress",
    "curves.png": "return or error, and norms of traces",
}
"""The files of a run directory."""


def table(run_dir: str | os.PathLike[str]) -> Any:
    """Return the table of a run, to be printed by rich.

    Raises:
        RunError: no run, or one without a single measurement.
    """
    from rich.table import Table

    config, lines = _read(run_dir)
    step = lines[-1]["step"]
    scores = result_of(lines, step)
    grid = Table("", _score(config), "reward of a step", title=_title(config))
    score = scores.get("error", float("nan")) if _predicts(config) else scores["return"]
    grid.add_row(f"this run (step {step} of {config.steps})", f"{score:.3g}", f"{scores['reward']:.3g}")
    for reference, name in _references(config, [line["step"] for line in lines]):
        grid.add_row(name, f"{reference:.3g}", "")
    grid.caption = f"Mean of the last {LAST:.0%} of the steps. {_cost(config)} {lines[-1]['seconds']:.0f} s."
    return grid


def figure(run_dir: str | os.PathLike[str]) -> str:
    """Draw return or error, and the norms of both traces, into `curves.png`; return the file's path.

    Raises:
        RunError: no run, or one without a single measurement.
        OSError: the file cannot be written.
    """
    config, lines = _read(run_dir)
    steps = [line["step"] for line in lines]
    page = new_page(13, 3.8)
    score, error, traces = page.subplots(1, 3)
    name = "error" if _predicts(config) else "return"
    score.plot(steps, [line[name] for line in lines], label="this run")
    score.set(title=_score(config), yscale="log" if _predicts(config) else "linear")
    for reference, name in _references(config, steps)[:1]:
        score.axhline(reference, color="0.5", linestyle=":", label=name)
    error.plot(steps, [line["td_error"] for line in lines])
    error.set(title="absolute temporal-difference error")
    for name, label in {"trace_norm": "in value (gradients)", "sensitivity_norm": "in time (sensitivities)"}.items():
        traces.plot(steps, [line[name] for line in lines], label=label)
    traces.set(title="norm of the traces", yscale="log" if lines[-1]["trace_norm"] else "linear")
    for axes in (score, error, traces):
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
    score.legend()
    traces.legend()
    page.suptitle(_title(config))
    path = Run(Path(run_dir)).figure
    write_atomically(path, page_as_png(page))
    return str(path)


def _predicts(config: RLConfig) -> bool:
    return config.agent.method == "prediction"


def _score(config: RLConfig) -> str:
    return "share of variance not predicted" if _predicts(config) else "return of an episode"


def _references(config: RLConfig, steps: list[int]) -> list[tuple[float, str]]:
    """Return scores to compare with, and what they are; of the same steps as the result, where that matters."""
    environment = config.environment
    if isinstance(environment, Series):
        before = [step for step in steps if step <= (1 - LAST) * steps[-1]]
        found = environment.baselines(config.agent.discount, max(before, default=0), steps[-1])
        return [(1.0, "the best constant for the whole file"), *((value, name) for name, value in found.items())]
    if _predicts(config):
        return [(1.0, "the best constant prediction")]
    return [] if environment.best_return is None else [(environment.best_return, "the best possible")]


def _title(config: RLConfig) -> str:
    rule = f"{config.rule}, credit depth {config.credit_depth}" if config.credit_depth else config.rule
    cell, environment = type(config.network.cell).__name__, config.environment
    seen = f"{type(environment).__name__}{config.observation}"
    return f"{seen}, {config.agent.method}, rule {rule}, {cell} x {config.network.depth}"


def _cost(config: RLConfig) -> str:
    agent = build(config)
    # The trace, and beside it the gradient of the entropy.
    gradients = 2 if agent._entropy_bonus else 1
    kept = gradients * parameter_count(agent.network) + carry_size(agent.network, agent.rule)
    return f"Each of {config.environments} environments carries {kept:,} numbers; seed {config.seed}."


def _read(run_dir: str | os.PathLike[str]) -> tuple[RLConfig, list[dict[str, Any]]]:
    config, run = read_config(run_dir), Run(Path(run_dir))
    lines = [r for r in read_metrics(run.metrics) if r["kind"] == "train"] if run.metrics.exists() else []
    if not lines:
        raise RunError(f"{run_dir} has nothing to report yet")
    return config, lines
