"""The environments of `foretrace rl`: a new one is its file, and a line here."""

import dataclasses
from typing import Any

from foretrace.experiment._cells import GRU, LRU, AbstractCellConfig
from foretrace.rl._gymnasium import Gymnasium
from foretrace.rl._gymnax import Gymnax
from foretrace.rl._memory_chain import MemoryChain
from foretrace.rl._repeat import RepeatFirst, RepeatPrevious
from foretrace.rl._t_maze import TMaze
from foretrace.rl._task import Task
from foretrace.rl._trace_conditioning import TraceConditioning


@dataclasses.dataclass(frozen=True)
class Entry:
    """An environment, and options that a run in it begins with other than the defaults.

    Args:
        environment: environment with its own defaults.
        cell: recurrent layer of the network.
        agent: options of the agent.
        run: options of the run.
    """

    environment: Task
    cell: AbstractCellConfig = dataclasses.field(default_factory=lambda: LRU(32))
    agent: dict[str, Any] = dataclasses.field(default_factory=dict)
    run: dict[str, Any] = dataclasses.field(default_factory=dict)


_SCALED = {"normalize_observations": True, "scale_rewards": True}

ENVIRONMENTS = {
    "memory-chain": Entry(MemoryChain()),
    "t-maze": Entry(TMaze()),
    "trace-conditioning": Entry(
        TraceConditioning(), agent={"method": "prediction", "discount": 0.9}
    ),
    "repeat-first": Entry(RepeatFirst(), GRU()),
    "repeat-previous": Entry(RepeatPrevious()),
    "gymnax": Entry(Gymnax(), agent=_SCALED),
    "gymnasium": Entry(
        Gymnasium(), agent=_SCALED, run={"steps": 50_000, "evaluation_episodes": 20}
    ),
}
"""Every environment of the command line by its name."""
