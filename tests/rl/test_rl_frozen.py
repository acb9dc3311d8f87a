"""Learning as it was recorded: every task, update and method, numbers in `frozen.json`.

python tests/rl/test_rl_frozen.py        records the present numbers
"""

import itertools
import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import fast

import foretrace as ft
from foretrace import rl
from foretrace._options.cells import GRU, LRU
from foretrace._options.network import NetworkConfig
from foretrace.rl._config import AgentConfig, RLConfig
from foretrace.rl._program import advance, begin, build

pytestmark = [
    pytest.mark.exact,
    pytest.mark.usefixtures("as_a_user"),
]

FROZEN = Path(__file__).with_name("frozen.json")
STEPS = 60
SAVED = ("maze, sarsa, adam", "maze, sarsa, obgd", "maze, sarsa, lstd", "scaled")
EVALUATED = ("chain, actor-critic, adam", "maze, sarsa, lstd", "scaled", "hidden")
TASKS = {
    "maze": rl.TMaze(3, limit=8),
    "conditioning": rl.TraceConditioning(3, distractors=1),
    "chain": rl.MemoryChain(3),
    "first": rl.RepeatFirst(),
    "previous": rl.RepeatPrevious(),
}
OTHERS = {
    "chain": ("actor-critic", "adam"),
    "first": ("actor-critic", "obgd"),
    "previous": ("sarsa", "lstd"),
}
"""Tasks with one method and update; the first two tasks have all that fit."""
METHODS = {
    "actor-critic": {},
    "no entropy": {"entropy": 0.0},
    "q-learning": {"method": "q-learning", "epsilon_steps": 20},
    "sarsa": {"method": "sarsa", "epsilon_steps": 20},
    "prediction": {"method": "prediction", "discount": 0.9},
}
UPDATES = {
    "adam": {"optimizer": "adam", "learning_rate": 0.01},
    "obgd": {"optimizer": "obgd"},
    "lstd": {"optimizer": "lstd"},
}
SCALED = {"normalize_observations": True, "scale_rewards": True}


def configurations():
    """Return the runs by name."""
    found = {}
    for task, environment in TASKS.items():
        for method, update in itertools.product(METHODS, UPDATES):
            if task in OTHERS and (method, update) != OTHERS[task]:
                continue
            valued = method not in ("actor-critic", "no entropy")
            if environment.predicts == (method == "prediction") and (valued or update != "lstd"):
                agent = AgentConfig(**METHODS[method], **UPDATES[update])
                found[f"{task}, {method}, {update}"] = _run_of(environment, agent, update)
    maze, agent = TASKS["maze"], AgentConfig(**UPDATES["adam"], **SCALED)
    found["scaled"] = _run_of(maze, agent, "adam", environments=3)
    found["scaled, obgd"] = _run_of(maze, AgentConfig(optimizer="obgd", **SCALED), "obgd")
    found["hidden"] = _run_of(maze, AgentConfig(), "adam", hide=(1,), environments=2)
    found["deep"] = _run_of(
        maze, AgentConfig(), "adam", rule="online(depth=1)", network=NetworkConfig(2, 4, GRU())
    )
    lstd = AgentConfig(method="sarsa", optimizer="lstd", normalize_observations=True)
    found["squares of a batch"] = _run_of(maze, lstd, "lstd", environments=3)
    return found


def _run_of(environment, agent, update, **options):
    rule = {"rule": "reservoir" if update == "lstd" else "online"}
    small = {} if update == "lstd" else {"network": NetworkConfig(1, 4, LRU(3))}
    return RLConfig(environment=environment, agent=agent, seed=1, **(rule | small | options))


CASES = configurations()


def numbers_of(tree):
    """Return one number that depends on all numbers of a tree."""
    total = 0.0
    for index, leaf in enumerate(jax.tree.leaves(tree)):
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf) / 2.0**32
        leaf = np.asarray(leaf)
        flat = np.concatenate([leaf.real.ravel(), leaf.imag.ravel()]).astype(float)
        total += float(flat @ np.cos(1.0 + index + np.arange(flat.size)))
    return total


def layout(tree):
    """Return names, shapes and dtypes of the arrays of a tree: what a checkpoint holds."""
    return [
        f"{jax.tree_util.keystr(path, simple=True, separator='.')} {leaf.dtype}{list(leaf.shape)}"
        for path, leaf in jax.tree.leaves_with_path(tree)
    ]


def found_in(name):
    """Return the numbers of a run of two blocks, and of episodes without learning."""
    config = CASES[name]
    agent = build(config)
    world = begin(config.seen, agent, jax.random.key(2))
    run = jax.jit(partial(advance, config.seen, agent))
    found = {"layout": layout(world)} if name in SAVED else {}
    for _ in range(2):
        world, tally = run(world, STEPS)
    found["second"] = {key: float(value) for key, value in tally.items()}
    found["state"] = {
        key: numbers_of(part) for key, part in world.agent._asdict().items() if part is not None
    }
    if name in EVALUATED:
        for greedy in (True, False):
            given = {"greedy": greedy, "key": jax.random.key(3)}
            episodes = agent.evaluate(world.agent, config.seen, 3, **given)
            found[f"greedy {greedy}"] = [*map(float, episodes.returns), *map(int, episodes.lengths)]
    return found


def stepped(optimizer):
    """Return the numbers of an agent with continuous actions, step by step from outside."""
    cell = ft.LRU.factory(state_size=3)
    network = ft.Network(2, 5, model_size=4, depth=1, cell=cell, key=jax.random.key(0))
    method = rl.ActorCritic(action_size=2, entropy=0.02)
    agent = rl.Agent(network, method, rule=ft.ONLINE, optimizer=optimizer, scale_rewards=True)
    rng, state, found = np.random.default_rng(4), agent.init(jax.random.key(5)), []
    step = jax.jit(agent.step)
    for t in range(40):
        seen, last, reward = rng.normal(size=2), rng.normal(size=2), rng.normal()
        seen = seen * np.nan if t == 17 else seen
        given = rl.Transition(
            jnp.asarray(seen),
            jnp.asarray(np.nan if t == 9 else reward),
            jnp.array(t % 10 == 3),
            jnp.array(t % 7 == 5),
            final_observation=jnp.asarray(last),
            first=jnp.array(t == 0 or t == 31),
        )
        action, state, info = step(state, given)
        found += [float(np.sum(np.abs(action))), *(float(np.sum(part)) for part in info)]
    state = {key: numbers_of(part) for key, part in state._asdict().items() if part is not None}
    return {"steps": found, "state": state}


STEPPED = {"obgd": rl.ObGD(), "default": None}


@pytest.fixture(scope="module", autouse=True)
def as_a_user():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(scope="module")
def frozen():
    return json.loads(FROZEN.read_text())


def assert_same(found, expected, place=""):
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), place
        for key, part in expected.items():
            assert_same(found[key], part, f"{place}.{key}")
    elif isinstance(expected, list) and expected and isinstance(expected[0], str):
        assert found == expected, place
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9, err_msg=place)


@pytest.mark.parametrize(
    "name",
    fast(
        [
            "maze, actor-critic, adam",
            *(case for case in CASES if case != "maze, actor-critic, adam"),
        ]
    ),
)
def test_a_run_learns_what_was_recorded(name, frozen):
    assert_same(found_in(name), frozen[name])


@pytest.mark.full
@pytest.mark.parametrize("name", STEPPED)
def test_steps_from_outside_learn_what_was_recorded(name, frozen):
    assert_same(stepped(STEPPED[name]), frozen[f"stepped, {name}"])


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    recorded = {name: found_in(name) for name in CASES}
    recorded |= {f"stepped, {name}": stepped(made) for name, made in STEPPED.items()}
    FROZEN.write_text(json.dumps(recorded, indent=1) + "\n")
