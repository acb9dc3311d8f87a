"""What each rule learns from one stream of experience: memory chains and trace conditioning; and the time of a step.

    python benchmarks/rl.py chain        return at the end of each run, by length of the chain and rule
    python benchmarks/rl.py trace        error of predictions, by interval and rule
    python benchmarks/rl.py maze         return in the T-maze
    python benchmarks/rl.py options      step sizes and traces on the chain of 16 steps: how the defaults were chosen
    python benchmarks/rl.py time         microseconds of an environment step, and of the loop in Python
    python benchmarks/rl.py table        the records as Markdown

Seeds run one after another in one compiled program: side by side (`vmap`) three of them took longer than in turn on a
CPU. Finished cells stay in records/rl.jsonl.
"""

import argparse
import dataclasses
import statistics
import time
from functools import partial

import jax
import ledger
import numpy as np

from foretrace.rl import MemoryChain, TMaze, TraceConditioning
from foretrace.rl._config import TASKS, AgentConfig
from foretrace.rl._program import advance, begin, build
from foretrace.rl._run import means, result_of

PATH = ledger.RECORDS / "rl.jsonl"
BLOCKS = 50


def learn(config, seeds, build=build):
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


def chain(cell):
    """Return what a cell of the memory chain, or of the maze, gives."""
    maze = cell["task"] == "maze"
    options = {name: cell[name] for name in ("optimizer", "learning_rate", "trace_decay", "discount", "entropy")}
    config = dataclasses.replace(
        TASKS["memory-chain"],
        environment=TMaze(cell["length"]) if maze else MemoryChain(cell["length"]),
        agent=AgentConfig(**options),
        rule=cell["rule"],
        credit_depth=cell.get("credit_depth", 0),
        steps=cell["steps"],
    )
    return learn(config, cell["seeds"])


def trace(cell):
    """Return what a cell of trace conditioning gives."""
    base = TASKS["trace-conditioning"]
    discount = 1 - 1 / (2 * cell["interval"])
    update = {name: cell[name] for name in ("optimizer", "learning_rate") if name in cell}
    agent = dataclasses.replace(base.agent, discount=discount, trace_decay=cell["trace_decay"], **update)
    environment = TraceConditioning(cell["interval"])
    config = dataclasses.replace(base, environment=environment, agent=agent, rule=cell["rule"], steps=cell["steps"])
    return learn(config, cell["seeds"])


def step_time(cell):
    """Return microseconds of a step within one program, and of a step of the loop in Python."""
    config = dataclasses.replace(
        TASKS["memory-chain"], agent=AgentConfig(optimizer=cell["optimizer"]), environments=cell["environments"]
    )
    agent = build(config)
    world = begin(config.environment, agent, jax.random.key(0))
    run, steps = jax.jit(partial(advance, config.environment, agent)), 2000
    jax.block_until_ready(run(world, np.int32(1)))
    compiled = []
    for _ in range(cell["rounds"]):
        began = time.perf_counter()
        jax.block_until_ready(run(world, np.int32(steps)))
        compiled.append((time.perf_counter() - began) / steps * 1e6)
    state, observation = agent.init(), np.zeros((cell["environments"], 2), np.float32)
    reward, python = np.zeros(cell["environments"], np.float32), []
    for i in range(300 * cell["rounds"]):
        began = time.perf_counter()
        action, state = agent.act(state, observation)
        np.asarray(action)
        state, _ = agent.learn(state, reward)
        if i > 100:
            python.append((time.perf_counter() - began) * 1e6)
    return {
        "compiled_us": round(statistics.median(compiled), 1),
        "compiled_fastest_us": round(min(compiled), 1),
        "python_us": round(statistics.median(python), 1),
        "python_fastest_us": round(min(python), 1),
    }


DEFAULT = {"optimizer": "adam", "learning_rate": 3e-4, "trace_decay": 0.8, "discount": 0.99, "entropy": 0.01}
RULES = ("online", "truncated", "spatial")


def chain_cells(seeds):
    """Yield the cells of the memory chain."""
    for length, steps in {4: 20_000, 16: 60_000, 64: 150_000, 128: 300_000}.items():
        for rule in RULES:
            yield {"task": "chain", "length": length, "rule": rule, **DEFAULT, "steps": steps, "seeds": seeds}


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
            update = {"optimizer": optimizer, "learning_rate": rate}
            options = {"trace_decay": 0.8, **update, "steps": 60_000, "seeds": seeds}
            yield {"task": "trace options", "interval": 20, "rule": rule, **options}


def maze_cells(seeds):
    """Yield the cells of the T-maze."""
    for length, steps in {10: 60_000, 50: 300_000, 100: 300_000}.items():
        for rule in ("online", "spatial"):
            yield {"task": "maze", "length": length, "rule": rule, **DEFAULT, "steps": steps, "seeds": seeds}


def option_cells(seeds):
    """Yield the cells that the defaults were chosen from: each differs in one or two options."""
    base = {"task": "options", "length": 16, "rule": "online", **DEFAULT}
    changes = [{"optimizer": "obgd", "learning_rate": 1.0}, {"learning_rate": 1e-3}, {"trace_decay": 0.0}]
    changes += [{"learning_rate": 3e-3}, {"learning_rate": 1e-4}, {"trace_decay": 0.95}, {"entropy": 0.0}]
    for change in changes:
        yield base | change | {"steps": 60_000, "seeds": seeds}


def time_cells(seeds):
    """Yield the cells of the times."""
    for optimizer in ("adam", "obgd"):
        for environments in (1, 8):
            yield {"task": "time", "optimizer": optimizer, "environments": environments, "rounds": 7}


PARTS = {
    "chain": (chain_cells, chain),
    "trace": (trace_cells, trace),
    "trace options": (trace_option_cells, trace),
    "maze": (maze_cells, chain),
    "options": (option_cells, chain),
    "time": (time_cells, step_time),
}


def table():
    """Print the records as Markdown."""
    for part in PARTS:
        records = [record for record in ledger.read(PATH) if record["cell"]["task"] == part]
        if not records:
            continue
        inputs = [name for name in records[0]["cell"] if name not in ("task", "seeds")]
        outputs = [name for name, value in records[0]["found"].items() if name != "curves" and value is not None]
        print()
        ledger.print_table(records, inputs, outputs)


def main():
    """Measure a part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=[*PARTS, "table"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--only", type=int, help="length or interval to measure; default: all")
    given = parser.parse_args()
    if given.part == "table":
        return table()
    cells, measure = PARTS[given.part]
    chosen = [cell for cell in cells(given.seeds) if given.only in (None, cell.get("length", cell.get("interval")))]
    ledger.each(PATH, chosen, measure)


if __name__ == "__main__":
    main()
