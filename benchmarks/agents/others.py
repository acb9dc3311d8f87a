"""Tasks that others have defined, and a file of numbers, beside simple predictions."""

import dataclasses
import itertools

from benchmarks.agents import predictions
from benchmarks.agents.own import RULES, learned
from benchmarks.streams import sources
from foretrace.experiment import GRU, LRU, NetworkConfig
from foretrace.rl import AgentConfig, Gymnax, RepeatFirst, RepeatPrevious, Series
from foretrace.rl._config import TASKS

UPDATES = {
    "adam": {"optimizer": "adam", "learning_rate": 3e-4},
    "obgd": {"optimizer": "obgd", "learning_rate": 1.0},
}
VELOCITIES = {"CartPole-v1": [1, 3], "Acrobot-v1": [4, 5]}
REPEAT = {"repeat-first": RepeatFirst(), "repeat-previous": RepeatPrevious()}
CELLS = {"LRU": NetworkConfig(2, 32, LRU(32)), "GRU": NetworkConfig(2, 32, GRU())}
HORIZON = 24
"""Number of hours that a prediction of the load looks ahead: the discount is 1 - 1/24."""


def agent_of(cell, **options):
    """Return the options of the agent of a cell."""
    return AgentConfig(
        trace_decay=cell["trace_decay"],
        discount=cell["discount"],
        **UPDATES[cell["update"]],
        **options,
    )


def control(cell):
    """Return the result of a cell of CartPole or Acrobot."""
    config = dataclasses.replace(
        TASKS["gymnax"],
        environment=Gymnax(cell["environment"]),
        hide=tuple(cell["hide"]),
        agent=agent_of(
            cell,
            method=cell["method"],
            normalize_observations=True,
            scale_rewards=True,
            entropy=cell["entropy"],
        ),
        rule=cell["rule"],
        steps=cell["steps"],
    )
    return learned(config, cell["seeds"])


def repeat(cell):
    """Return the result of a cell of a card task."""
    config = dataclasses.replace(
        TASKS["repeat-first"],
        environment=REPEAT[cell["environment"]],
        network=CELLS[cell["cell"]],
        agent=agent_of(cell, entropy=cell["entropy"]),
        rule=cell["rule"],
        steps=cell["steps"],
    )
    return learned(config, cell["seeds"])


def load(cell):
    """Return the result of an agent, or a simple prediction, on the column of a file."""
    file = sources.data() / "streams" / "ETTh1.csv.gz"
    series, discount, steps = Series(str(file), cell["column"]), cell["discount"], cell["steps"]
    by, decay = cell["by"], cell.get("trace_decay")
    if by in RULES:
        agent = agent_of(cell, method="prediction", normalize_observations=True)
        return learned(
            dataclasses.replace(
                TASKS["series"], environment=series, agent=agent, rule=by, steps=steps
            ),
            cell["seeds"],
        )
    simple = {
        "best constant": lambda: predictions.constant(series, discount, steps),
        "last value": lambda: predictions.last_value(series, discount, steps),
        "linear TD": lambda: predictions.linear_td(
            series, discount, steps, cell["window"], decay, cell["learning_rate"]
        ),
        "LSTD": lambda: predictions.least_squares_td(
            series, discount, steps, cell["window"], decay
        ),
    }
    return predictions.errors(series, discount, steps, simple[by]())


def control_cells(seeds):
    """Yield CartPole's and Acrobot's cells: methods, rules, and stream-x's fully observed."""
    for method in ("actor-critic", "q-learning"):
        for environment, velocities in VELOCITIES.items():
            for hide, rule in itertools.product(([], velocities), ("online", "spatial")):
                yield _control_cell(environment, hide, rule, method, "adam", seeds)
    for method, environment in itertools.product(("actor-critic", "q-learning"), VELOCITIES):
        yield _control_cell(environment, [], "online", method, "obgd", seeds)


def _control_cell(environment, hide, rule, method, update, seeds):
    options = {"update": update, "trace_decay": 0.8, "discount": 0.99, "entropy": 0.01}
    cell = {
        "task": "control",
        "environment": environment,
        "hide": hide,
        "rule": rule,
        "method": method,
    }
    return {**cell, **options, "steps": 150_000, "seeds": seeds}


def repeat_cells(seeds):
    """Yield the cells of the card tasks."""
    options = {
        "update": "adam",
        "trace_decay": 0.8,
        "discount": 0.99,
        "entropy": 0.01,
        "seeds": seeds,
    }
    for environment, cell in (
        ("repeat-previous", "LRU"),
        ("repeat-first", "GRU"),
        ("repeat-first", "LRU"),
    ):
        for rule in RULES:
            names = {"task": "repeat", "environment": environment, "cell": cell, "rule": rule}
            yield {
                **names,
                **options,
                "steps": 100_000 if environment == "repeat-previous" else 300_000,
            }


def load_cells(seeds):
    """Yield the load's cells: agents, simple predictions, then linear ones from a window.

    An agent carries 17,441 numbers (trace and sensitivities). As many are in a window of 1,240
    hours and its trace (17,361), or in a window of 18 hours and the matrix of LSTD (16,256).
    """
    base = {
        "task": "load",
        "column": "HUFL",
        "discount": round(1 - 1 / HORIZON, 4),
        "steps": 17_400,
    }
    for rule in RULES:
        yield {**base, "by": rule, "update": "adam", "trace_decay": 0.8, "seeds": seeds}
    for name in ("best constant", "last value"):
        yield {**base, "by": name}
    yield {**base, "by": "LSTD", "window": 18, "trace_decay": 0.8}
    for window in (24, 168, 1240):
        for rate in (1e-2, 3e-3, 1e-3, 3e-4, 1e-4):
            yield {
                **base,
                "by": "linear TD",
                "window": window,
                "trace_decay": 0.8,
                "learning_rate": rate,
            }
