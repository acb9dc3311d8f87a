"""Learning as it was recorded: every task, update and method, numbers in `frozen.json`.

python tests/rl/test_rl_frozen.py        records the present numbers
"""

import json
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
from tiers import fast

from foretrace._runs.config_json import from_json
from foretrace.rl._config import RLConfig
from foretrace.rl._program import advance, begin, build

pytestmark = [
    pytest.mark.exact,
    pytest.mark.usefixtures("as_a_user"),
]

FROZEN = Path(__file__).with_name("frozen.json")
RECORDED = json.loads(FROZEN.read_text())
"""By name: configuration, then numbers. A new run is a name with its configuration alone."""
STEPS = 60


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


def found_in(given):
    """Return the numbers of a run of two blocks, and of episodes without learning."""
    config = from_json(RLConfig, given["config"])
    agent = build(config)
    world = begin(config.seen, agent, jax.random.key(2))
    run = jax.jit(partial(advance, config.seen, agent))
    found = {"layout": layout(world)} if "layout" in given else {}
    for _ in range(2):
        world, tally = run(world, STEPS)
    found["second"] = {key: float(value) for key, value in tally.items()}
    found["state"] = {
        key: numbers_of(part) for key, part in world.agent._asdict().items() if part is not None
    }
    for greedy in (True, False) if "greedy True" in given else ():
        episodes = agent.evaluate(world.agent, config.seen, 3, greedy=greedy, key=jax.random.key(3))
        found[f"greedy {greedy}"] = [*map(float, episodes.returns), *map(int, episodes.lengths)]
    return found


@pytest.fixture(scope="module", autouse=True)
def as_a_user():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def assert_same(found, expected, place=""):
    if isinstance(expected, dict):
        assert found.keys() == expected.keys(), place
        for key, part in expected.items():
            assert_same(found[key], part, f"{place}.{key}")
    elif isinstance(expected, list) and expected and isinstance(expected[0], str):
        assert found == expected, place
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9, err_msg=place)


@pytest.mark.parametrize("name", fast(sorted(RECORDED, key=lambda name: "maze, act" not in name)))
def test_a_run_learns_what_was_recorded(name):
    expected = RECORDED[name]
    assert_same(found_in(expected), {key: expected[key] for key in expected if key != "config"})


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    found = {
        name: {"config": given["config"], **found_in(given)} for name, given in RECORDED.items()
    }
    FROZEN.write_text(json.dumps(found, indent=1) + "\n")
