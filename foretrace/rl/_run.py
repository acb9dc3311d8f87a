"""A run of an agent in a run directory that it can be resumed from exactly (`foretrace rl`)."""

import dataclasses
import os
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from foretrace._runs.checkpoint import load
from foretrace._runs.directory import Run, read_config_as
from foretrace._runs.loop import DivergenceError, Schedule
from foretrace._runs.metrics import read_metrics
from foretrace._runs.session import RunKind, Saved, Session, session
from foretrace.rl._agent import Agent
from foretrace.rl._config import AgentConfig, RLConfig
from foretrace.rl._live import errors_of_python
from foretrace.rl._metrics import means
from foretrace.rl._program import World, advance, begin, build
from foretrace.rl._state import AgentState

LAST = 0.1
"""Share of a run, at its end, that the result is the mean of."""


KIND = RunKind(RLConfig, may_grow=("steps",))


class RLResult(NamedTuple):
    """Result of a run.

    Args:
        run: directory of the run.
        step: number of steps done.
        scores: means over the last tenth of the run; None if it was stopped before its end.
        seconds: seconds over all parts of the run.
    """

    run: Run
    step: int
    scores: dict[str, float] | None
    seconds: float


class _Loadable(NamedTuple):
    """What `load` needs to know of a run: the agent and its environments before the first step."""

    config: RLConfig
    agent: Agent

    def init(self) -> World:
        """Return agent and environments before the first step."""
        return begin(
            self.config.seen, self.agent, jax.random.fold_in(jax.random.key(self.config.seed), 1)
        )


def train(
    config: RLConfig,
    run_dir: str | os.PathLike[str],
    *,
    resume: bool = False,
    show_progress: bool = True,
) -> RLResult:
    """Let an agent act and learn to the last step, or to Ctrl-C or SIGTERM; save the state.

    On the same machine with the same packages, a resumed run ends with the same state and the same
    record, bit for bit, as a run that never stopped. Only `seconds` in the record differs. A run
    that is resumed with more steps ends as if it had had them from the beginning.

    Args:
        config: configuration of the run.
        run_dir: new or empty directory; with `resume`, the directory of the run.
        resume: whether to continue the run that is there.
        show_progress: whether step, return and error are shown on standard error.

    Raises:
        ValueError: a configuration that makes no agent, or (`RunError`) a directory that cannot be
            used.
        LockedError: another process trains there.
        CheckpointError: the checkpoint to continue from is damaged.
        DivergenceError: every step of a whole block was refused; the last good state is kept.
        OSError: a file could not be written in the middle of the run.
    """
    with errors_of_python(), session(KIND, config, run_dir, resume, show_progress) as run:
        loadable = _Loadable(config, build(config))
        saved = run.read_saved(Saved)
        world = _world(run, loadable, saved)
        if (done := run.result(saved)) is not None:
            scores = {name: done[name] for name in done if name not in ("kind", "step", "seconds")}
            return RLResult(run.run, done["step"], scores, done["seconds"])
        run.begin(saved)
        return _follow(run, loadable.agent, world, max(saved.step, 0))


def agent_of(run_dir: str | os.PathLike[str]) -> tuple[Agent, AgentState]:
    """Return the agent of a run and its latest saved state.

    Raises:
        RunError: there is no run, it cannot be read, or it is of another command.
        CheckpointError: the checkpoint is damaged or of another configuration.
        OSError: there is no checkpoint yet.
    """
    config = read_config_as(run_dir, RLConfig)
    agent = build(config)
    return agent, load(Run(Path(run_dir)).checkpoint, _Loadable(config, agent)).agent


def _world(run: Session[RLConfig], loadable: _Loadable, saved: Saved) -> World:
    """Return agent and environments from the checkpoint, or before the first step."""
    return jax.jit(loadable.init)() if saved.step < 0 else load(run.run.checkpoint, loadable)


@lru_cache(maxsize=1)
def _compiled(config: RLConfig) -> Any:
    """Return `advance` as a program shared by a grid's seeds: parameters are arguments."""
    return jax.jit(partial(advance, config.seen, build(config)), donate_argnums=0)


def _follow(run: Session[RLConfig], agent: Agent, world: World, step: int) -> RLResult:
    """Act and learn from a step on; record, save and finish what is due."""
    config, schedule = run.config, Schedule(run.config.steps)
    program = _compiled(
        dataclasses.replace(config, seed=0, steps=1, log_every=1, checkpoint_every=1)
    )
    spread = getattr(config.seen, "spread", None)
    spread = None if spread is None else spread(config.agent.discount)
    while step < config.steps and not run.stop.asked:
        block = schedule.steps_until_due(step, config.log_every)
        run.show.compiling()
        world, tally = program(world, np.int32(block))
        step += block
        values = means(jax.tree.map(float, tally), spread)
        run.log.write("train", step, **values, seconds=run.clock.seconds)
        has_diverged = bool(tally["refused"] * config.environments >= tally["steps"])
        label = "return" if spread is None else "error"
        run.show.reach(step, f"{label} {values[label]:.3g}")
        if has_diverged or schedule.is_due(step, config.checkpoint_every):
            run.save(world, step)
        if has_diverged:
            raise DivergenceError(
                "learning has diverged: an observation, reward, error or update was NaN or "
                f"infinite in every step up to step {step}; the checkpoint has the last good "
                f"state; {_advice(config.agent)}"
            )
    if step < config.steps:
        run.save(world, step)
        return RLResult(run.run, step, None, run.clock.seconds)
    return _finish(run, agent, world)


def _finish(run: Session[RLConfig], agent: Agent, world: World) -> RLResult:
    """Record the result of the last step."""
    config = run.config
    lines = [r for r in read_metrics(run.run.metrics) if r["kind"] == "train"]
    scores = result_of(lines, config.steps)
    if count := config.evaluation_episodes:
        key = jax.random.fold_in(jax.random.key(config.seed), 2)
        found = agent.evaluate(world.agent, config.seen, count, key=key)
        scores["evaluation"] = float(found.returns.mean())
    seconds = run.clock.seconds
    run.log.write("result", config.steps, **scores, seconds=seconds)
    return RLResult(run.run, config.steps, scores, seconds)


def _advice(config: AgentConfig) -> str:
    """Return what to do if an agent has diverged."""
    if config.optimizer == "lstd":
        return "look for rewards or observations that are far too large"
    return f"try a smaller agent.learning_rate (now {config.step_size})"


def result_of(lines: list[dict[str, Any]], steps: int) -> dict[str, float]:
    """Return the mean of a run's last tenth: returns over episodes, others over lines.

    >>> lines = [
    ...     {"step": s, "return": float(s), "episodes": 2.0, "reward": 0.5} for s in (10, 95, 100)
    ... ]
    >>> result_of(lines, 100)
    {'return': 97.5, 'reward': 0.5}
    """
    last: list[dict[str, Any]] = [
        line for line in lines if line["step"] > (1 - LAST) * steps
    ] or lines[-1:]
    ended = [line for line in last if line["episodes"]]
    total = sum(line["episodes"] for line in ended)
    found = {
        "return": sum(line["return"] * line["episodes"] for line in ended) / total
        if total
        else float("nan")
    }
    for name in ("reward", "error"):
        values = [line[name] for line in last if name in line and not np.isnan(line[name])]
        if values:
            found[name] = float(np.mean(values))
    return found
