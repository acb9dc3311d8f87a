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
DEFAULT = {
    "optimizer": "adam",
    "learning_rate": 3e-4,
    "trace_decay": 0.8,
    "discount": 0.99,
    "entropy": 0.01,
}
LEAST_SQUARES = {
    "optimizer": "lstd",
    "learning_rate": None,
    "trace_decay": 0.9,
    "epsilon": 0.02,
}
OPTIONS = {*DEFAULT, *LEAST_SQUARES, "method"}
RULES = ("online", "truncated", "spatial")
FEED_FORWARD = NetworkConfig(2, 32, LRU(32, r_max=1e-7))
EQUAL_COMPUTE, EQUAL_MEMORY = 2, 32
"""Reaches of windows with the online rule's operations and memory, rounded in their favour.

By the part `sizes`, on the chain: a window of 1 takes fewer operations than the online rule and one
of 2 more; one of 32 takes no more memory, carried and working, and one of 65 more.
"""


def config_of(cell):
    """Return the configuration of a cell: the command line's, with the cell's settings."""
    kind = cell.get("environment") or cell["task"].split()[0].replace("options", "chain")
    length = cell.get("length", cell.get("interval"))
    if kind == "trace":
        base, environment = TASKS["trace-conditioning"], TraceConditioning(length)
        agent = dataclasses.replace(base.agent, discount=1 - 1 / (2 * length))
    else:
        base, environment = (
            TASKS["memory-chain"],
            {"chain": MemoryChain, "maze": TMaze}[kind](length),
        )
        agent = AgentConfig(**DEFAULT)
    way = cell.get("way", cell.get("rule"))
    depth = f"(depth={cell['credit_depth']})" if cell.get("credit_depth") else ""
    return dataclasses.replace(
        base,
        environment=environment,
        agent=dataclasses.replace(agent, **{name: cell[name] for name in OPTIONS if name in cell}),
        network=FEED_FORWARD if way == "feed-forward" else base.network,
        rule={"feed-forward": "spatial", "rolling": base.rule}.get(way, way) + depth,
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


def chain_cells(seeds):
    """Yield the cells of the memory chain."""
    for length, steps in {4: 20_000, 16: 60_000, 64: 150_000, 128: 300_000}.items():
        for rule in RULES:
            yield {
                "task": "chain",
                "length": length,
                "rule": rule,
                **DEFAULT,
                "steps": steps,
                "seeds": seeds,
            }


def trace_cells(seeds):
    """Yield the cells of trace conditioning."""
    for interval, steps in {20: 60_000, 5: 20_000, 50: 100_000, 10: 40_000}.items():
        for rule in RULES:
            options = {"trace_decay": 0.8, "steps": steps, "seeds": seeds}
            yield {"task": "trace", "interval": interval, "rule": rule, **options}


def trace_option_cells(seeds):
    """Yield cells of trace conditioning with other updates than Adam at 3e-4."""
    for optimizer, rate in (("obgd", 1.0), ("adam", 1e-4)):
        for rule in ("online", "spatial"):
            options = {
                "trace_decay": 0.8,
                "optimizer": optimizer,
                "learning_rate": rate,
                "steps": 60_000,
            }
            yield {"task": "trace options", "interval": 20, "rule": rule, **options, "seeds": seeds}


def maze_cells(seeds):
    """Yield the cells of the T-maze."""
    for length, steps in {10: 60_000, 50: 300_000, 100: 300_000}.items():
        for rule in ("online", "spatial"):
            yield {
                "task": "maze",
                "length": length,
                "rule": rule,
                **DEFAULT,
                "steps": steps,
                "seeds": seeds,
            }


def option_cells(seeds):
    """Yield the cells that the defaults were chosen from: each differs in one or two options."""
    changes = [
        {"optimizer": "obgd", "learning_rate": 1.0},
        {"learning_rate": 1e-3},
        {"trace_decay": 0.0},
    ]
    changes += [
        {"learning_rate": 3e-3},
        {"learning_rate": 1e-4},
        {"trace_decay": 0.95},
        {"entropy": 0.0},
    ]
    for change in changes:
        base = {"task": "options", "length": 16, "rule": "online", **DEFAULT}
        yield base | change | {"steps": 60_000, "seeds": seeds}


def squares_cells(seeds):
    """Yield the cells of values by least squares on untrained modules."""
    tasks = {
        ("maze", 10): 60_000,
        ("maze", 50): 100_000,
        ("maze", 100): 100_000,
        ("trace", 20): 60_000,
        ("trace", 50): 100_000,
        ("chain", 64): 150_000,
        ("chain", 128): 300_000,
    }
    for (environment, length), steps in tasks.items():
        method = "prediction" if environment == "trace" else "sarsa"
        place = {"part": "squares", "environment": environment, "length": length}
        options = {"rule": "reservoir", "method": method, **LEAST_SQUARES}
        yield {**place, **options, "steps": steps, "seeds": seeds}


def window_cells(seeds):
    """Yield the cells of feed-forward agents and of rolling windows."""
    tasks = {
        ("chain", 16): 60_000,
        ("maze", 10): 60_000,
        ("trace", 20): 60_000,
        ("chain", 64): 150_000,
    }
    for (environment, length), steps in tasks.items():
        place = {"part": "windows", "environment": environment, "length": length}
        yield {**place, "way": "feed-forward", "reach": 1, "steps": steps, "seeds": seeds}
        # Those of 32 hold the cue of all tasks but the chain of 64.
        for reach in (EQUAL_COMPUTE, EQUAL_MEMORY, *((65,) if length == 64 else ())):
            yield {**place, "way": "rolling", "reach": reach, "steps": steps, "seeds": seeds}
