"""Report of an agent's run: a table and a figure, made only from the run's records."""

import os
from typing import Any

from foretrace._engine.carry import carry_size
from foretrace._network import parameter_count
from foretrace._runs.directory import RunError
from foretrace._runs.figures import Panel, draw_metrics
from foretrace._runs.saved import read_run
from foretrace.rl._config import RLConfig
from foretrace.rl._metrics import TITLES
from foretrace.rl._program import build
from foretrace.rl._run import LAST, result_of

Line = dict[str, Any]


def table(run_dir: str | os.PathLike[str]) -> Any:
    """Return the table of a run, for printing with rich.

    Raises:
        RunError: there is no run, or the run has no measurement yet.
    """
    from rich.table import Table

    config, lines, last = _read(run_dir)
    step = lines[-1]["step"]
    scores = result_of(lines, step)
    grid = Table("", TITLES[score_of(config)], TITLES["reward"], title=_title(config))
    score = scores.get(score_of(config), float("nan"))
    grid.add_row(
        f"this run (step {step} of {config.steps})", f"{score:.3g}", f"{scores['reward']:.3g}"
    )
    if "evaluation" in last:
        grid.add_row(
            f"{config.evaluation_episodes} episodes without learning",
            f"{last['evaluation']:.3g}",
            "",
        )
    for name, reference in config.environment.references.items():
        grid.add_row(name, f"{reference:.3g}", "")
    cost = f"{_cost(config)} {lines[-1]['seconds']:.0f} s.{_clipped(config)}"
    grid.caption = f"Mean of the last {LAST:.0%} of the steps. {cost}\n{_watched(lines[-1])}"
    return grid


def figure(run_dir: str | os.PathLike[str]) -> str:
    """Draw score, trace norms and monitors of a run into `curves.png`, and return the path.

    Raises:
        RunError: there is no run, or the run has no measurement yet.
        OSError: the file cannot be written.
    """
    config, lines, _ = _read(run_dir)
    panels = []
    for name in TITLES:
        if name in lines[-1]:
            curve = [(line["step"], line[name]) for line in lines]
            levels = config.environment.references if name == score_of(config) else {}
            panels.append(Panel(TITLES[name], {"this run": curve}, levels))
    return draw_metrics(run_dir, _title(config), panels)


def score_of(config: RLConfig) -> str:
    """Return the name of a run's score in its record."""
    return "error" if config.agent.method == "prediction" else "return"


def _title(config: RLConfig) -> str:
    layers = f"{config.network.cell.title} x {config.network.depth}"
    if config.agent.optimizer == "lstd":
        layers = "LSTD on untrained modules"
    hidden = f" (without elements {', '.join(map(str, config.hide))})" if config.hide else ""
    seen = f"{config.environment.title}{hidden}"
    return f"{seen}, {config.agent.method}, rule {config.rule}, {layers}"


def _cost(config: RLConfig) -> str:
    agent = build(config)
    # The trace and, in addition, the gradient of the entropy, or of the last and the final value.
    gradients = 3 if agent.optimizer.asks_following else 2 if agent.method.entropy else 1
    part = agent.optimizer.trained(agent.network)
    kept = gradients * parameter_count(part) + carry_size(agent.network, agent.rule)
    return (
        f"Each of {config.environments} environments carries {kept:,} numbers; seed {config.seed}."
    )


def _clipped(config: RLConfig) -> str:
    """Return a sentence about the bounds of continuous actions."""
    if config.environment.bounds is None:
        return ""
    ranges = (f"[{low:g}, {high:g}]" for low, high in zip(*config.environment.bounds, strict=True))
    return f" Actions are clipped to {', '.join(dict.fromkeys(ranges))}."


def _watched(line: Line) -> str:
    """Return a sentence about the monitors of the last block of steps."""
    told = [name for name in TITLES if name in line and name not in ("return", "reward", "error")]
    return "At the end: " + ", ".join(f"{TITLES[name]} {line[name]:.4g}" for name in told) + "."


def _read(run_dir: str | os.PathLike[str]) -> tuple[RLConfig, list[Line], Line]:
    """Return the configuration, the lines of metrics, and the last line of the record."""
    config, record = read_run(run_dir, RLConfig)
    if not (lines := [line for line in record if line["kind"] == "train"]):
        raise RunError(f"{run_dir} has nothing to report yet")
    return config, lines, record[-1]
