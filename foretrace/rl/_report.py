"""Report of an agent's run: a table and a figure, made from its records alone."""

import os
from pathlib import Path
from typing import Any

from foretrace._engine.carry import carry_size
from foretrace._network import parameter_count
from foretrace._runs.directory import Run, RunError, read_config_as
from foretrace._runs.figures import new_page, page_as_png
from foretrace._runs.files import write_atomically
from foretrace._runs.metrics import read_metrics
from foretrace._runs.session import find_result
from foretrace.rl._config import RLConfig
from foretrace.rl._program import build
from foretrace.rl._run import LAST, result_of

CONTENTS = {
    "config.json": "what was run, with versions and hardware",
    "metrics.jsonl": "return, errors and what was watched, a line each",
    "checkpoint.safetensors": "agent, environments and progress",
    "curves.png": "return or error, and what was watched",
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
    grid = Table("", score_of(config)[1], "reward of a step", title=_title(config))
    score = scores.get("error", float("nan")) if _predicts(config) else scores["return"]
    grid.add_row(
        f"this run (step {step} of {config.steps})", f"{score:.3g}", f"{scores['reward']:.3g}"
    )
    result = find_result(Run(Path(run_dir)), config) or {}
    if "evaluation" in result:
        grid.add_row(
            f"{config.evaluation_episodes} episodes without learning",
            f"{result['evaluation']:.3g}",
            "",
        )
    for reference, name in _references(config, [line["step"] for line in lines]):
        grid.add_row(name, f"{reference:.3g}", "")
    cost = f"{_cost(config)} {lines[-1]['seconds']:.0f} s."
    grid.caption = f"Mean of the last {LAST:.0%} of the steps. {cost}\n{_watched(lines[-1])}"
    return grid


def figure(run_dir: str | os.PathLike[str]) -> str:
    """Draw score, trace norms and monitors of a run into its `curves.png`; return the path.

    Raises:
        RunError: no run, or one without a single measurement.
        OSError: the file cannot be written.
    """
    config, lines = _read(run_dir)
    steps = [line["step"] for line in lines]
    page = new_page(13, 7)
    (score, error, traces), monitors = page.subplots(2, 3)
    name = "error" if _predicts(config) else "return"
    score.plot(steps, [line[name] for line in lines], label="this run")
    score.set(title=score_of(config)[1], yscale="log" if _predicts(config) else "linear")
    for reference, name in _references(config, steps)[:1]:
        score.axhline(reference, color="0.5", linestyle=":", label=name)
    error.plot(steps, [line["td_error"] for line in lines])
    error.set(title="absolute temporal-difference error")
    for name, label in {
        "trace_norm": "in value (gradients)",
        "sensitivity_norm": "in time (sensitivities)",
    }.items():
        traces.plot(steps, [line[name] for line in lines], label=label)
    traces.set(title="norm of the traces", yscale="log" if lines[-1]["trace_norm"] else "linear")
    _draw_monitors(monitors, config, lines)
    for axes in (score, error, traces, *monitors):
        axes.set_xlabel("step")
        axes.grid(alpha=0.3)
    score.legend()
    traces.legend()
    page.suptitle(_title(config))
    path = Run(Path(run_dir)).figure
    write_atomically(path, page_as_png(page))
    return str(path)


def _draw_monitors(places: Any, config: RLConfig, lines: list[dict[str, Any]]) -> None:
    """Draw how large a step is, how long the memory can last, and the modules that do nothing."""
    size, memory, units = places
    steps, last = [line["step"] for line in lines], lines[-1]
    bounded = config.agent.optimizer == "obgd"
    name = "step_size" if bounded else "update_norm"
    size.plot(steps, [line[name] for line in lines])
    size.set(
        title="step size" if bounded else "norm of an update",
        yscale="log" if last[name] else "linear",
    )
    distances = [1 - line["spectral_radius"] for line in lines]
    memory.plot(steps, distances)
    # Below zero a state grows by itself.
    memory.set(
        title="1 - largest |eigenvalue| of a layer",
        yscale="log" if min(distances) > 0 else "linear",
    )
    for name, label in {
        "dead_modules": "state unmoved",
        "untrained_modules": "coefficients unchanged",
    }.items():
        units.plot(steps, [line[name] for line in lines], label=label)
    units.set(title="share of modules", ylim=(-0.02, 1.02))
    units.legend()


def _predicts(config: RLConfig) -> bool:
    return config.agent.method == "prediction"


def score_of(config: RLConfig) -> tuple[str, str]:
    """Return the score's name in the record of a run, and its description."""
    if _predicts(config):
        return "error", "share of variance not predicted"
    return "return", "return of an episode"


def _references(config: RLConfig, steps: list[int]) -> list[tuple[float, str]]:
    """Return named reference scores, of the same steps as the result where that matters."""
    before = [step for step in steps if step <= (1 - LAST) * steps[-1]]
    found = config.environment.references(config.agent.discount, max(before, default=0), steps[-1])
    return [(value, name) for name, value in found.items()]


def _title(config: RLConfig) -> str:
    cell = type(config.network.cell).__name__
    seen = f"{config.environment.title}{config.observation}"
    return f"{seen}, {config.agent.method}, rule {config.rule}, {cell} x {config.network.depth}"


def _cost(config: RLConfig) -> str:
    agent = build(config)
    # The trace, and beside it the gradient of the entropy.
    gradients = 2 if agent.method.entropy else 1
    kept = gradients * parameter_count(agent.network) + carry_size(agent.network, agent.rule)
    return (
        f"Each of {config.environments} environments carries {kept:,} numbers; seed {config.seed}."
    )


def _watched(line: dict[str, Any]) -> str:
    """Report the monitors of the last block of steps."""
    return (
        f"At the end: largest |eigenvalue| of a layer {line['spectral_radius']:.5f}; modules dead "
        f"{line['dead_modules']:.0%}, untrained {line['untrained_modules']:.0%}; norms of the "
        f"traces in value {line['trace_norm']:.3g}, in time {line['sensitivity_norm']:.3g}, of an "
        f"update {line['update_norm']:.2g}; refused steps {line['refused']:.0f}."
    )


def _read(run_dir: str | os.PathLike[str]) -> tuple[RLConfig, list[dict[str, Any]]]:
    config, run = read_config_as(run_dir, RLConfig), Run(Path(run_dir))
    lines = (
        [r for r in read_metrics(run.metrics) if r["kind"] == "train"]
        if run.metrics.exists()
        else []
    )
    if not lines:
        raise RunError(f"{run_dir} has nothing to report yet")
    return config, lines
