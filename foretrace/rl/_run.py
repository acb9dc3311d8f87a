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
        return _Training(run, loadable.agent, saved).run_from(world)


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


class _Training:
    """The loop, and the work that is due at each step."""

    def __init__(self, run: Session[RLConfig], agent: Agent, saved: Saved):
        self.agent = agent
        self.session, self.run, self.config, self.clock = run, run.run, run.config, run.clock
        self.log, self.show, self.stop = run.log, run.show, run.stop
        config = self.config
        self.step, self.schedule = max(saved.step, 0), Schedule(config.steps)
        self.advance = _compiled(
            dataclasses.replace(config, seed=0, steps=1, log_every=1, checkpoint_every=1)
        )
        spread = getattr(config.seen, "spread", None)
        self.spread = None if spread is None else spread(config.agent.discount)

    def run_from(self, world: World) -> RLResult:
        """Act and learn from the present step on."""
        while self.step < self.config.steps and not self.stop.asked:
            block = self.schedule.steps_until_due(self.step, self.config.log_every)
            self.show.compiling()
            world, tally = self.advance(world, np.int32(block))
            self.step += block
            self._log_block(jax.tree.map(float, tally), world)
            if self.schedule.is_due(self.step, self.config.checkpoint_every):
                self._save(world)
        if self.step < self.config.steps:
            self._save(world)
            return RLResult(self.run, self.step, None, self.clock.seconds)
        return self._finish(world)

    def _log_block(self, tally: dict[str, float], world: World) -> None:
        values = means(tally, self.spread)
        self.log.write("train", self.step, **values, seconds=self.clock.seconds)
        if tally["refused"] * self.config.environments >= tally["steps"]:
            self._save(world)
            raise DivergenceError(
                "learning has diverged: an observation, reward, error or update was NaN or "
                f"infinite in every step up to step {self.step}; the checkpoint has the last good "
                f"state; {_advice(self.config.agent)}"
            )
        label = "error" if "error" in values else "return"
        self.show.reach(self.step, f"{label} {values[label]:.3g}")

    def _finish(self, world: World) -> RLResult:
        lines = [r for r in read_metrics(self.run.metrics) if r["kind"] == "train"]
        scores = result_of(lines, self.config.steps)
        if count := self.config.evaluation_episodes:
            key = jax.random.fold_in(jax.random.key(self.config.seed), 2)
            scores["evaluation"] = float(
                self.agent.evaluate(world.agent, self.config.seen, count, key=key).returns.mean()
            )
        seconds = self.clock.seconds
        self.log.write("result", self.step, **scores, seconds=seconds)
        return RLResult(self.run, self.step, scores, seconds)

    def _save(self, world: World) -> None:
        self.session.save(world, self.step)


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
