"""Results of agents on one stream of experience, and the cost of their steps.

    python -m benchmarks.agents.run chain      return on memory chains, by length and rule
    python -m benchmarks.agents.run trace      error of predictions, by interval and rule
    python -m benchmarks.agents.run maze       return in the T-maze
    python -m benchmarks.agents.run options    how the defaults of step and trace were chosen
    python -m benchmarks.agents.run windows    a feed-forward agent and rolling windows
    python -m benchmarks.agents.run control    CartPole and Acrobot, also without velocities
    python -m benchmarks.agents.run repeat     RepeatFirst and RepeatPrevious of POPGym, Easy
    python -m benchmarks.agents.run ppo        recurrent PPO, an upper reference
    python -m benchmarks.agents.run squares    values by least squares on untrained modules
    python -m benchmarks.agents.run time       microseconds of an environment step
    python -m benchmarks.agents.run sizes      operations, memory and time of a step, by rule
    python -m benchmarks.agents.run memory     memory and live arrays over a million steps
    python -m benchmarks.agents.run table      the records as Markdown

Finished cells stay in records/rl.jsonl, rl_baselines.jsonl, rl_tasks.jsonl, rl_ppo.jsonl.
"""

from benchmarks import ledger
from benchmarks.agents import costs, others, own, ppo

PARTS = {
    "chain": ("rl", own.chain_cells, own.learn),
    "trace": ("rl", own.trace_cells, own.learn),
    "trace options": ("rl", own.trace_option_cells, own.learn),
    "maze": ("rl", own.maze_cells, own.learn),
    "options": ("rl", own.option_cells, own.learn),
    "time": ("rl", costs.time_cells, costs.step_time),
    "windows": ("rl_baselines", own.window_cells, own.learn),
    "sizes": ("rl_baselines", costs.size_cells, costs.sizes),
    "memory": ("rl_baselines", costs.memory_cells, costs.memory),
    "control": ("rl_tasks", others.control_cells, others.control),
    "repeat": ("rl_tasks", others.repeat_cells, others.repeat),
    "squares": ("rl_baselines", own.squares_cells, own.learn),
    "ppo": ("rl_ppo", ppo.ppo_cells, ppo.learn),
}


def table():
    """Print the records as Markdown: the cell, the means, and each seed."""
    for part, (file, *_) in PARTS.items():
        records = ledger.read(ledger.RECORDS / f"{file}.jsonl")
        records = [
            record
            for record in records
            if part == (record["cell"].get("part") or record["cell"].get("task"))
        ]
        inputs = dict.fromkeys(name for record in records for name in record["cell"])
        outputs = dict.fromkeys(
            name for record in records for name in record["found"] if name != "curves"
        )
        print()
        ledger.print_table(
            records, [n for n in inputs if n not in ("part", "task", "seeds", "rounds")], outputs
        )


def main():
    parser = ledger.parser(__doc__)
    parser.add_argument("part", choices=[*PARTS, "table"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--only", nargs="+", help="environments or lengths; default: all")
    given = parser.parse_args()
    if given.part == "table":
        return table()
    file, cells, measure = PARTS[given.part]
    names = ("environment", "length", "interval")
    chosen = [
        cell
        for cell in cells(given.seeds)
        if given.only is None or any(str(cell.get(name)) in given.only for name in names)
    ]
    return ledger.each(ledger.RECORDS / f"{file}.jsonl", chosen, measure)


if __name__ == "__main__":
    main()
