"""Cost of an agent's step: time, operations, memory, and growth over a million steps."""

import statistics
import time
from functools import partial

import jax
import numpy as np

from benchmarks.agents.own import builder, config_of
from benchmarks.networks import timed
from foretrace._engine.operations import operations
from foretrace._runs.machine import resident_mib
from foretrace.rl._program import advance, begin


def sizes(cell):
    """Return the cost of a step of one environment."""
    config = config_of(cell)
    agent = builder(cell)(config)
    world = begin(config.seen, agent, jax.random.key(0))
    # Its episodes are never cut, and a run then leaves these two out as well.
    brought = world.transition._replace(truncated=None, final_observation=None)
    step, given = jax.jit(agent.step), (world.agent, brought)
    working = step.lower(*given).compile().memory_analysis().temp_size_in_bytes
    run, steps = jax.jit(partial(advance, config.seen, agent)), 1000
    took = timed({"run": lambda: run(world, np.int32(steps))}, cell["rounds"])["run"]
    carried = sum(leaf.nbytes for leaf in jax.tree.leaves(world.agent.carry))
    return {
        "operations": operations(agent.step, *given),
        "carried_kib": round(carried / 2**10, 1),
        "working_kib": round(working / 2**10, 1),
        "us": round(1e6 * statistics.median(took) / steps, 1),
        "us_fastest": round(1e6 * min(took) / steps, 1),
    }


def memory(cell):
    """Return resident memory, live arrays and their size at twenty moments of a run."""
    config = config_of(cell)
    agent = builder(cell)(config)
    world = begin(config.seen, agent, jax.random.key(0))
    run = jax.jit(partial(advance, config.seen, agent), donate_argnums=0)
    block, lines = cell["steps"] // 20, []
    began = time.perf_counter()
    for i in range(20):
        world, tally = run(world, np.int32(block))
        jax.block_until_ready(tally)
        # Their list is not kept: it would keep them alive.
        lines.append([(i + 1) * block, resident_mib(), *live()])
    return {
        "resident_mib": [lines[0][1], lines[-1][1]],
        "live_arrays": [lines[0][2], lines[-1][2]],
        "live_bytes": [lines[0][3], lines[-1][3]],
        "refused": float(tally["refused"]),
        "seconds": round(time.perf_counter() - began, 1),
        "curves": lines,
    }


def live():
    """Return number and bytes of all arrays of this process."""
    alive = jax.live_arrays()
    return len(alive), sum(array.nbytes for array in alive)
