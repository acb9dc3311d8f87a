"""Tasks that others have defined."""

import dataclasses
import itertools

from benchmarks.agents.own import RULES, learned
from foretrace.experiment import GRU, LRU, NetworkConfig
from foretrace.rl import AgentConfig, Gymnax, RepeatFirst, RepeatPrevious
from foretrace.rl._config import TASKS

UPDATES = {
    "adam": {"optimizer": "adam", "learning_rate": 3e-4},
    "obgd": {"optimizer": "obgd", "learning_rate": 1.0},
}
VELOCITIES = {"CartPole-v1": [1, 3], "Acrobot-v1": [4, 5]}
REPEAT = {"repeat-first": RepeatFirst(), "repeat-previous": RepeatPrevious()}
CELLS = {"LRU": NetworkConfig(2, 32, LRU(32)), "GRU": NetworkConfig(2, 32, GRU())}


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
