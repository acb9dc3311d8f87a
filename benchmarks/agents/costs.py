"""Cost of an agent's step: time, operations, memory, and growth over a million steps."""

import dataclasses
import statistics
import time
from functools import partial

import jax
import numpy as np

from benchmarks.agents.own import builder, config_of
from foretrace._engine.operations import operations
from foretrace._runs.machine import resident_mib
from foretrace.rl import AgentConfig, Transition
from foretrace.rl._config import TASKS
from foretrace.rl._program import advance, begin, build


def step_times(config, agent, world, rounds, steps):
    """Return microseconds of a step in each round of one program."""
    run, took = jax.jit(partial(advance, config.seen, agent)), []
    jax.block_until_ready(run(world, np.int32(1)))
    for _ in range(rounds):
        began = time.perf_counter()
        jax.block_until_ready(run(world, np.int32(steps)))
        took.append((time.perf_counter() - began) / steps * 1e6)
    return took


def step_time(cell):
    """Return microseconds of a step within one program, and of a step of the loop in Python."""
    agent = AgentConfig(optimizer=cell["optimizer"])
    changes = {"agent": agent, "environments": cell["environments"]}
    config = dataclasses.replace(TASKS["memory-chain"], **changes)
    agent = build(config)
    world = begin(config.environment, agent, jax.random.key(0))
    compiled = step_times(config, agent, world, cell["rounds"], 2000)
    observation = np.zeros((cell["environments"], 2), np.float32)
    _, state, _ = agent.step(agent.init(), Transition(observation, first=True))
    brought, python = Transition(observation, np.zeros(cell["environments"], np.float32)), []
    for i in range(300 * cell["rounds"]):
        began = time.perf_counter()
        action, state, _ = agent.step(state, brought)
        np.asarray(action)
        if i > 100:
            python.append((time.perf_counter() - began) * 1e6)
    return {
        "compiled_us": round(statistics.median(compiled), 1),
        "compiled_fastest_us": round(min(compiled), 1),
        "python_us": round(statistics.median(python), 1),
        "python_fastest_us": round(min(python), 1),
    }


def sizes(cell):
    """Return the cost of a step of one environment."""
    config = config_of(cell)
    agent = builder(cell)(config)
    world = begin(config.seen, agent, jax.random.key(0))
    # Its episodes are never cut, and a run then leaves these two out as well.
    brought = world.transition._replace(truncated=None, final_observation=None)
    step, given = jax.jit(agent.step), (world.agent, brought)
    working = step.lower(*given).compile().memory_analysis().temp_size_in_bytes
    took = step_times(config, agent, world, cell["rounds"], 1000)
    carried = sum(leaf.nbytes for leaf in jax.tree.leaves(world.agent.carry))
    return {
        "operations": operations(agent.step, *given),
        "carried_kib": round(carried / 2**10, 1),
        "working_kib": round(working / 2**10, 1),
        "us": round(statistics.median(took), 1),
        "us_fastest": round(min(took), 1),
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
