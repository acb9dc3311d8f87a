"""A run of an agent in a run directory, from which it can be resumed (`foretrace rl`)."""

import dataclasses
import os
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from foretrace._runs.checkpoint import load
from foretrace._runs.directory import Run, read_config_as
from foretrace._runs.follow import Program, Result, Schedule, Session, follow
from foretrace._runs.metrics import read_metrics
from foretrace._runs.programs import described, program
from foretrace._runs.saved import RunKind, Saved, read_saved
from foretrace.rl._agent import Agent
from foretrace.rl._config import RLConfig
from foretrace.rl._live import SpacedTask, errors_of_python
from foretrace.rl._metrics import TITLES, Tally, means
from foretrace.rl._program import World, advance, begin, build
from foretrace.rl._state import AgentState

LAST = 0.1
"""Last fraction of a run, over which the result is averaged."""


KIND = RunKind(RLConfig, may_grow=("steps",))
RLResult = Result


def train(
    config: RLConfig,
    run_dir: str | os.PathLike[str],
    *,
    resume: bool = False,
    show_progress: bool = True,
) -> RLResult:
    """Let an agent act and learn to the last step, or until Ctrl-C or SIGTERM; save the state.

    On the same machine with the same packages, a resumed run ends with the same state and the same
    record, bit for bit, as a run that was not stopped. Only `seconds` in the record differs. A run
    that is resumed with more steps ends as if it had had these steps from the beginning.

    Args:
        config: configuration of the run.
        run_dir: new or empty directory; with `resume`, the directory of the run.
        resume: whether to continue the run in the directory.
        show_progress: whether to show step, return and error on standard error.

    Raises:
        ValueError: the configuration gives no valid agent, or (`RunError`) the directory cannot be
            used.
        LockedError: another process trains in the directory.
        CheckpointError: the checkpoint is damaged.
        DivergenceError: all steps of several blocks were refused. The last good state is kept.
        OSError: a file could not be written during the run.
    """
    with errors_of_python():
        return follow(KIND, config, run_dir, _Acting, resume=resume, show_progress=show_progress)


def agent_of(run_dir: str | os.PathLike[str]) -> tuple[Agent, AgentState]:
    """Return the agent of a run, and its latest saved state.

    Raises:
        RunError: there is no run, it cannot be read, it belongs to another command, or its
            configuration was changed after its checkpoint was written.
        CheckpointError: the checkpoint is damaged or has another configuration.
        OSError: there is no checkpoint yet.
    """
    config, run = read_config_as(run_dir, RLConfig), Run(Path(run_dir))
    read_saved(run, config, Saved, KIND)
    agent = build(config)
    like = SimpleNamespace(init=partial(_begun, config, agent))
    return agent, load(run.checkpoint, like).agent


def _begun(config: RLConfig, agent: Agent) -> World:
    """Return agent and environments before the first step."""
    return begin(config.seen, agent, jax.random.fold_in(jax.random.key(config.seed), 1))


@lru_cache(maxsize=1)
def _compiled(config: RLConfig) -> Any:
    """Return `advance` as a program that all seeds share; the parameters are arguments."""

    def block(world: World, steps: Any) -> tuple[World, Tally]:
        return advance(config.seen, build(config, network=world.agent.network), world, steps)

    # The text does not describe environments of other packages.
    of = None if isinstance(config.environment, SpacedTask) else described(config)
    sums = dict.fromkeys((*TITLES, "steps", "known"), 0)
    return program("agent", block, of, form=lambda world, _: (world, sums), changes=True)


class _Acting(Program[World]):
    """The steps of an agent, in blocks that each write one line of the record."""

    def __init__(self, session: Session):
        super().__init__(session)
        self.config = config = session.config
        self.agent = build(config)
        self.program = _compiled(
            dataclasses.replace(config, seed=0, steps=1, log_every=1, checkpoint_every=1)
        )
        spread = getattr(config.seen, "spread", None)
        self.spread = None if spread is None else spread(config.agent.discount)

    def init(self) -> World:
        """Return agent and environments before the first step."""
        return jax.jit(partial(_begun, self.config, self.agent))()

    def block(self) -> None:
        """Act and learn up to the next line of the record, and write the line."""
        config, show = self.config, self.session.show
        show.compiling()
        steps = Schedule(config.steps).steps_until_due(self.step, config.log_every)
        self.state, tally = self.program(self.state, np.int32(steps))
        self.step += steps
        values = means(jax.tree.map(float, tally), self.spread)
        self.record("train", **values)
        label = "return" if self.spread is None else "error"
        show.reach(self.step, f"{label} {values[label]:.3g}")
        all_refused = tally["refused"] * config.environments >= tally["steps"]
        self.refused = self.refused + steps if all_refused else 0
        advice = (
            f"try a smaller agent.learning_rate (now {config.agent.step_size}), or look for "
            "rewards or observations that are far too large"
        )
        self.check_refused(self.refused, self.step, advice)

    def result(self) -> dict[str, Any]:
        """Return the means over the last tenth of the run."""
        config = self.config
        lines = [r for r in read_metrics(self.session.run.metrics) if r["kind"] == "train"]
        scores = result_of(lines, config.steps)
        if count := config.evaluation_episodes:
            key = jax.random.fold_in(jax.random.key(config.seed), 2)
            found = self.agent.evaluate(self.state.agent, config.seen, count, key=key)
            scores["evaluation"] = float(found.returns.mean())
        return scores


def result_of(lines: list[dict[str, Any]], steps: int) -> dict[str, float]:
    """Return means over the last tenth of a run.

    >>> lines = [
    ...     {"step": s, "return": float(s), "episodes": s - 90.0, "reward": s / 2}
    ...     for s in (90, 92, 96)
    ... ]
    >>> result_of(lines, 100)
    {'return': 95.0, 'reward': 47.0}
    >>> result_of(lines[:1], 100)["reward"]
    45.0
    """
    last = [line for line in lines if line["step"] > (1 - LAST) * steps] or lines[-1:]
    ended = [line for line in last if line["episodes"]]
    total = sum(line["return"] * line["episodes"] for line in ended)
    count = sum(line["episodes"] for line in ended)
    found = {"return": total / count if count else float("nan")}
    for name in ("reward", "error"):
        values = [line[name] for line in last if name in line and not np.isnan(line[name])]
        if values:
            found[name] = float(np.mean(values))
    return found
