"""What agents reach without recurrence and by rolling windows; what a step costs; and memory over a million steps.

    python benchmarks/rl_baselines.py sizes      operations, memory and time of a step, by rule and reach of the window
    python benchmarks/rl_baselines.py learn      returns and errors of a feed-forward agent and of rolling windows
    python benchmarks/rl_baselines.py memory     memory and live arrays over a million steps
    python benchmarks/rl_baselines.py table      the records as Markdown

The agents, tasks and options are those of `rl.py`, whose records have the rules. A feed-forward agent is one whose
memory is gone after a step: an LRU with |lambda| at the smallest number, under the spatial rule, which never trains it.
Finished cells stay in records/rl_baselines.jsonl.
"""

import argparse
import dataclasses
import statistics
import time
from functools import partial

import jax
import ledger
import numpy as np
import optax
import rl
from rl_rolling import RollingActorCritic, RollingValuePrediction

from foretrace._engine.operations import operations
from foretrace._runs.machine import resident_mib
from foretrace.experiment._cells import LRU
from foretrace.experiment._config import NetworkConfig
from foretrace.rl import MemoryChain, TMaze, TraceConditioning
from foretrace.rl._config import TASKS, AgentConfig
from foretrace.rl._program import advance, begin, build

PATH = ledger.RECORDS / "rl_baselines.jsonl"

FEED_FORWARD = NetworkConfig(2, 32, LRU(32, r_max=1e-7))
EQUAL_COMPUTE, EQUAL_MEMORY = 2, 32
"""Reaches of windows with the operations and the memory of the online rule, rounded in favour of the window.

By `sizes`, on the chain: a window of 1 takes fewer operations than the online rule and one of 2 more; one of 32 takes
no more memory, carried and working, and one of 65 more.
"""


def config_of(cell):
    """Return the configuration of a cell: that of the command line, but for what the cell says."""
    if cell["environment"] == "trace":
        base, discount = TASKS["trace-conditioning"], 1 - 1 / (2 * cell["length"])
        base = dataclasses.replace(
            base,
            environment=TraceConditioning(cell["length"]),
            agent=dataclasses.replace(base.agent, discount=discount),
        )
    else:
        make = {"chain": MemoryChain, "maze": TMaze}[cell["environment"]]
        base = dataclasses.replace(
            TASKS["memory-chain"], environment=make(cell["length"]), agent=AgentConfig(**rl.DEFAULT)
        )
    base = dataclasses.replace(base, steps=cell.get("steps", base.steps))
    if cell["way"] == "feed-forward":
        return dataclasses.replace(base, network=FEED_FORWARD, rule="spatial")
    return base if cell["way"] == "rolling" else dataclasses.replace(base, rule=cell["way"])


def build_rolling(reach, config, key=None):
    """Return what `build` returns, but for the gradient: through the last `reach` steps."""
    agent, options = build(config, key), config.agent
    shared = {name: getattr(agent, name) for name in ("discount", "trace_decay", "batch_size")}
    shared["optimizer"] = optax.adam(options.step_size)
    if options.method == "prediction":
        return RollingValuePrediction(agent.network, reach=reach, **shared)
    weights = {"actor_weight": options.actor_weight, "entropy": options.entropy}
    return RollingActorCritic(agent.network, reach=reach, **weights, **shared)


def builder(cell):
    """Return the function that makes the agent of a cell."""
    return partial(build_rolling, cell["reach"]) if cell["way"] == "rolling" else build


def learn(cell):
    """Return the results of a cell's seeds, one after another."""
    return rl.learn(config_of(cell), cell["seeds"], build=builder(cell))


def sizes(cell):
    """Return what a step of one environment takes."""
    config = config_of(cell)
    agent = builder(cell)(config)
    world = begin(config.seen, agent, jax.random.key(0))
    step, given = agent._act, (world.agent, world.observation)
    working = step.lower(*given).compile().memory_analysis().temp_size_in_bytes
    run, steps = jax.jit(partial(advance, config.seen, agent)), 1000
    jax.block_until_ready(run(world, np.int32(1)))
    took = []
    for _ in range(cell["rounds"]):
        began = time.perf_counter()
        jax.block_until_ready(run(world, np.int32(steps)))
        took.append((time.perf_counter() - began) / steps * 1e6)
    carried = sum(leaf.nbytes for leaf in jax.tree.leaves(world.agent.carry))
    return {
        "operations": operations(agent._traced_act, *given),
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
    run, block, lines = jax.jit(partial(advance, config.seen, agent), donate_argnums=0), cell["steps"] // 20, []
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
        "refused": float(tally.skipped),
        "seconds": round(time.perf_counter() - began, 1),
        "curves": lines,
    }


def live():
    """Return number and bytes of all arrays of this process."""
    alive = jax.live_arrays()
    return len(alive), sum(array.nbytes for array in alive)


def learn_cells(seeds):
    """Yield the cells of what is learned."""
    tasks = {("chain", 16): 60_000, ("maze", 10): 60_000, ("trace", 20): 60_000, ("chain", 64): 150_000}
    for (environment, length), steps in tasks.items():
        place = {"part": "learn", "environment": environment, "length": length}
        yield {**place, "way": "feed-forward", "reach": 1, "steps": steps, "seeds": seeds}
        # Those of 32 hold the cue of all tasks but the chain of 64.
        for reach in (EQUAL_COMPUTE, EQUAL_MEMORY, *((65,) if length == 64 else ())):
            yield {**place, "way": "rolling", "reach": reach, "steps": steps, "seeds": seeds}


def size_cells(seeds):
    """Yield the cells of the costs."""
    place = {"part": "sizes", "environment": "chain", "length": 64}
    for way in ("spatial", "truncated", "online"):
        yield {**place, "way": way, "reach": None, "rounds": 15}
    for reach in (1, 2, 4, 8, 16, 24, 32, 48, 65):
        yield {**place, "way": "rolling", "reach": reach, "rounds": 15}


def memory_cells(seeds):
    """Yield the cells of the memory over a long run."""
    for environment in ("chain", "trace"):
        place = {"part": "memory", "environment": environment, "length": 16}
        yield {**place, "way": "online", "reach": None, "steps": 1_000_000}


PARTS = {"sizes": (size_cells, sizes), "learn": (learn_cells, learn), "memory": (memory_cells, memory)}


def table():
    """Print the records as Markdown."""
    for part in PARTS:
        records = [record for record in ledger.read(PATH) if record["cell"]["part"] == part]
        if not records:
            continue
        inputs = [name for name in records[0]["cell"] if name not in ("part", "seeds", "rounds")]
        outputs = [name for name in records[0]["found"] if name != "curves"]
        print()
        ledger.print_table(records, inputs, outputs)


def main():
    """Measure a part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=[*PARTS, "table"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--only", choices=["chain", "maze", "trace"], help="environment to measure; default: all")
    parser.add_argument("--length", type=int, help="length to measure; default: all")
    given = parser.parse_args()
    if given.part == "table":
        return table()
    cells, measure = PARTS[given.part]
    chosen = [
        cell
        for cell in cells(given.seeds)
        if given.only in (None, cell["environment"]) and given.length in (None, cell["length"])
    ]
    ledger.each(PATH, chosen, measure)


if __name__ == "__main__":
    main()
