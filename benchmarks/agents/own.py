"""Memory chains, the T-maze and trace conditioning: by rule, rolling window, no recurrence.

A feed-forward agent is one whose memory is gone after a step: an LRU with |lambda| at the smallest
number, under the spatial rule, which never trains it. Seeds run one after another in one compiled
program: side by side (`vmap`) three of them took longer than in turn on a CPU.
"""

import dataclasses
import statistics
from functools import partial

import jax
import numpy as np
import optax

from benchmarks.agents.rolling import RollingAgent
from foretrace.experiment import LRU, NetworkConfig
from foretrace.rl import AgentConfig, MemoryChain, TMaze, TraceConditioning
from foretrace.rl._config import TASKS
from foretrace.rl._metrics import means
from foretrace.rl._program import advance, begin, build
from foretrace.rl._run import result_of

BLOCKS = 50
DEFAULT = {"optimizer": "adam", "learning_rate": 3e-4, "trace_decay": 0.8}
DEFAULT |= {"discount": 0.99, "entropy": 0.01}
OPTIONS = {*DEFAULT, "epsilon", "method"}
ENVIRONMENTS = {"chain": MemoryChain, "maze": TMaze, "trace": TraceConditioning}
RECURRENT = NetworkConfig(2, 32, LRU(32))
FEED_FORWARD = NetworkConfig(2, 32, LRU(32, r_max=1e-7))


def config_of(cell):
    """Return the configuration of a cell: the command line's, with two layers of LRUs."""
    kind = cell.get("environment") or cell["task"]
    length = cell.get("length", cell.get("interval"))
    base, environment = TASKS["memory-chain"], ENVIRONMENTS[kind](length)
    agent = AgentConfig(**DEFAULT)
    if kind == "trace":
        base = TASKS["trace-conditioning"]
        agent = dataclasses.replace(base.agent, discount=1 - 1 / (2 * length))
    way = cell.get("way", cell.get("rule"))
    network = FEED_FORWARD if way == "feed-forward" else RECURRENT
    return dataclasses.replace(
        base,
        environment=environment,
        agent=dataclasses.replace(agent, **{name: cell[name] for name in OPTIONS if name in cell}),
        network=None if cell.get("optimizer") == "lstd" else network,
        rule={"feed-forward": "spatial", "rolling": base.rule}.get(way, way),
        steps=cell.get("steps", base.steps),
    )


def builder(cell):
    """Return the function that makes the agent of a cell."""
    return partial(_build_rolling, cell["reach"]) if cell.get("way") == "rolling" else build


def _build_rolling(reach, config, key=None):
    """Return what `build` returns, but for the gradient: through the last `reach` steps."""
    agent, options = build(config, key), config.agent
    shared = {name: getattr(agent, name) for name in ("discount", "trace_decay", "batch_size")}
    shared["optimizer"] = optax.adam(options.step_size)
    return RollingAgent(agent.network, agent.method, reach=reach, **shared)


def learn(cell):
    """Return the results of a cell's seeds."""
    return learned(config_of(cell), cell["seeds"], build=builder(cell))


def learned(config, seeds, build=build):
    """Run one seed after another; return the result of each and its curve of returns or errors."""
    agent, environment = build(config), config.seen

    @jax.jit
    def first(seed):
        key = jax.random.key(seed)
        world = begin(environment, agent, jax.random.fold_in(key, 1))
        return world._replace(agent=world.agent._replace(network=build(config, key).network))

    step = jax.jit(partial(advance, environment, agent), donate_argnums=0)
    spread = getattr(environment, "spread", None)
    spread = spread and spread(config.agent.discount)
    name, block = "return" if spread is None else "error", config.steps // BLOCKS
    results, curves = [], []
    for seed in seeds:
        world, lines = first(seed), []
        for i in range(BLOCKS):
            world, tally = step(world, np.int32(block))
            lines.append({"step": (i + 1) * block, **means(jax.tree.map(float, tally), spread)})
        results.append(round(result_of(lines, config.steps)[name], 4))
        curves.append([round(line[name], 3) for line in lines])
    return {"mean": round(statistics.mean(results), 4), "each": results, "curves": curves}
