"""Results of agents on one stream of experience, and the cost of their steps.

    python -m benchmarks.agents.run chain      return on memory chains, by length and rule
    python -m benchmarks.agents.run trace      error of predictions, by interval and rule
    python -m benchmarks.agents.run maze       return in the T-maze
    python -m benchmarks.agents.run windows    a feed-forward agent and rolling windows
    python -m benchmarks.agents.run control    CartPole and Acrobot, also without velocities
    python -m benchmarks.agents.run repeat     RepeatFirst and RepeatPrevious of POPGym, Easy
    popgym/bin/python -m benchmarks.agents.run popgym --seeds 0    four tasks of POPGym itself
    python -m benchmarks.agents.run chains --seeds 0               gymnax's memory chain
    python -m benchmarks.agents.run ppo        recurrent PPO, an upper reference
    python -m benchmarks.agents.run squares    values by least squares on untrained modules
    python -m benchmarks.agents.run choice --seeds 0    one agent for tasks of all kinds
    python -m benchmarks.agents.run sizes      operations, memory and time of a step, by rule
    python -m benchmarks.agents.run memory     memory and live arrays over a million steps

Finished cells stay in records/rl.jsonl, rl_baselines.jsonl, rl_tasks.jsonl, rl_ppo.jsonl, and of
the boards `popgym` and `chains` in boards.jsonl. Their settings were written down before the first
run: the agent of the part `repeat` with the cell that docs/agents.md advises, 300,000 steps of
POPGym 1.0.7 and, as published, 500,000 of the chain. Seeds are run in order, from 0 to 9 and from
0 to 15, all tasks of a seed before the next, and every finished one counts.
"""

from itertools import product

from benchmarks import ledger
from benchmarks.agents import costs, others, own, ppo
from benchmarks.ledger import grid

RULES, TWO = ["online", "truncated", "spatial"], ["online", "spatial"]
USUAL = {"update": "adam", "trace_decay": 0.8, "discount": 0.99, "entropy": 0.01}
EQUAL_COMPUTE, EQUAL_MEMORY = 2, 32
"""Reaches of windows with the online rule's operations and memory, rounded in their favour.

By the part `sizes`, on the chain: a window of 1 takes fewer operations than the online rule and one
of 2 more; one of 32 takes no more memory, carried and working, and one of 65 more.
"""


def by_steps(steps, name="length", **settings):
    """Return cells for lengths of an environment, each with its number of steps."""
    return [
        cell
        for length, count in steps.items()
        for cell in grid(**{name: length}, **settings, steps=count)
    ]


def squares():
    """Return the cells of values by least squares on untrained modules."""
    tasks = {
        "maze": {10: 60_000, 50: 100_000, 100: 100_000},
        "trace": {20: 60_000, 50: 100_000},
        "chain": {64: 150_000, 128: 300_000},
    }
    settings = {"optimizer": "lstd", "learning_rate": None, "trace_decay": 0.9, "epsilon": 0.02}
    found = []
    for environment, steps in tasks.items():
        method = "prediction" if environment == "trace" else "sarsa"
        place = {"part": "squares", "environment": environment, "method": method}
        found += by_steps(steps, **place, rule="reservoir", **settings)
    return found


def windows():
    """Return the cells of feed-forward agents and of rolling windows."""
    tasks = {"maze": {10: 60_000}, "trace": {20: 60_000}, "chain": {16: 60_000, 64: 150_000}}
    found = []
    for environment, steps in tasks.items():
        place = {"part": "windows", "environment": environment}
        found += by_steps(steps, **place, way="feed-forward", reach=1)
        # Those of 32 hold the cue of all tasks but the chain of 64.
        found += by_steps(steps, **place, way="rolling", reach=[EQUAL_COMPUTE, EQUAL_MEMORY])
    return found + by_steps({64: 150_000}, **place, way="rolling", reach=65)


def control():
    """Return CartPole's and Acrobot's cells: methods, rules, and stream-x's fully observed."""
    place, found = {"task": "control", "method": ["actor-critic", "q-learning"]}, []
    for name, velocities in others.VELOCITIES.items():
        here = {**place, "environment": name, **USUAL, "steps": 150_000}
        found += grid(**here | {"hide": [[], velocities], "rule": TWO})
        found += grid(**here | {"hide": [[]], "rule": "online", "update": "obgd"})
    return found


def repeat():
    """Return the cells of the card tasks."""
    place = {"task": "repeat", "rule": RULES, **USUAL}
    first = {"environment": "repeat-first", "cell": ["GRU", "LRU"], "steps": 300_000}
    previous = {"environment": "repeat-previous", "cell": "LRU", "steps": 100_000}
    return grid(**place, **previous) + grid(**place, **first)


def popgym():
    """Return the cells of POPGym's own environments: the setting of all four is one.

    That of `RTU+GRU` is the result of the part `choice`.
    """
    tasks = ["RepeatFirst", "RepeatPrevious", "CountRecall", "Autoencode"]
    place = {"board": "POPGym", "task": "popgym", "stream": tasks, "way": "foretrace"}
    return grid(**place, cell=["GRU", "RTU+GRU"], rule="online", **USUAL, steps=300_000)


def choice():
    """Return the cells that choose one agent, written down before the first run.

    The candidate with the largest score, as a mean over tasks and seeds that all candidates have
    finished, is the one agent. Seeds are run in order, from 0 to 4, all cells of a seed before the
    next. Everything but the cell is the agent of the part `repeat` with one layer. The discount is
    1 - 1/k; k is 100, more than the steps between any cue and its use.
    """
    tasks = {"repeat-first": (None, 100_000), "repeat-previous": (None, 100_000)}
    tasks |= {"chain": (64, 100_000), "maze": (10, 60_000)}
    return [
        {"task": "choice", "environment": environment, "length": length, "cell": cell}
        | {"depth": 1, "discount": 0.99, "steps": steps}
        for environment, (length, steps) in tasks.items()
        for cell in others.KINDS
    ]


def chains():
    """Return the cells of gymnax's memory chain.

    The agent of the part `choice` has a discount of 1 - 1/k for a chain of k steps.
    """
    place = {"board": "gymnax", "task": "chains", "way": "foretrace", "rule": "online"}
    found = []
    for cell, length in product(("LRU", "RTU+GRU"), (128, 256, 512)):
        options = USUAL if cell == "LRU" else USUAL | {"discount": round(1 - 1 / length, 4)}
        row = {"cell": cell, "length": length, **options, "steps": 500_000}
        found.append(place | row | {"stream": f"chain of {length}"})
    return found


def ppo_cells():
    """Return two tasks with the same options, steps counted over all environments."""
    settings = {"discount": 0.99, "entropy": 0.01, "learning_rate": 1e-3, "environments": 16}
    settings |= {"rollout": 128, "epochs": 4, "steps": 512_000}
    tasks = {"maze": 10, "chain": 64}
    return [{"task": "ppo", "environment": e, "length": n, **settings} for e, n in tasks.items()]


def sizes():
    """Return the cells of the cost of a step."""
    place = {"part": "sizes", "environment": "chain", "length": 64, "rounds": 15}
    reaches = [1, 2, 4, 8, 16, 24, 32, 48, 65]
    rules = grid(**place, way=["spatial", "truncated", "online"], reach=None)
    return rules + grid(**place, way="rolling", reach=reaches)


def memory():
    """Return the cells of the memory over a long run."""
    place = {"part": "memory", "environment": ["chain", "trace"], "length": 16}
    return grid(**place, way="online", reach=None, steps=1_000_000)


CHAINS = {4: 20_000, 16: 60_000, 64: 150_000, 128: 300_000}
TRACES = {20: 60_000, 5: 20_000, 50: 100_000, 10: 40_000}
MAZES = {10: 60_000, 50: 300_000, 100: 300_000}
LEARNED = {
    "chain": ("rl", own.learn, by_steps(CHAINS, task="chain", rule=RULES, **own.DEFAULT)),
    "trace": (
        "rl",
        own.learn,
        by_steps(TRACES, "interval", task="trace", rule=RULES, trace_decay=0.8),
    ),
    "maze": ("rl", own.learn, by_steps(MAZES, task="maze", rule=TWO, **own.DEFAULT)),
    "windows": ("rl_baselines", own.learn, windows()),
    "squares": ("rl_baselines", own.learn, squares()),
    "control": ("rl_tasks", others.control, control()),
    "repeat": ("rl_tasks", others.repeat, repeat()),
    "choice": ("rl_tasks", others.choice, choice()),
    "popgym": ("boards", others.popgym, popgym()),
    "chains": ("boards", others.chain, chains()),
    "ppo": ("rl_ppo", ppo.learn, ppo_cells()),
}
"""Record, measurement and cells of each part."""
COSTS = {
    "sizes": ("rl_baselines", costs.sizes, sizes()),
    "memory": ("rl_baselines", costs.memory, memory()),
}


def cells(part, seeds=(0, 1)):
    """Return the cells of a part.

    Args:
        part: one of those above.
    """
    if part in COSTS:
        return COSTS[part][2]
    return [cell | {"seeds": list(seeds)} for cell in LEARNED[part][2]]


def entry_of(cell):
    """Return the entry of a cell's part."""
    return (LEARNED | COSTS)[cell.get("part") or cell["task"]]


if __name__ == "__main__":
    record, measure = (lambda cell, i=i: entry_of(cell)[i] for i in (0, 1))
    ledger.run(__doc__, record, cells, lambda cell: measure(cell)(cell))
