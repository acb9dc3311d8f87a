"""Environments of gymnasium as pure functions, and runs in them."""

import dataclasses
import json
import sys
import types
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file
from stop_after_three import StopAfterThree

import foretrace as ft
from foretrace import rl
from foretrace._options.cells import LRU
from foretrace._options.network import NetworkConfig
from foretrace.cli import _main as cli
from foretrace.rl import _gymnasium, _live, _report, _run
from foretrace.rl._config import RLConfig
from foretrace.rl._environment import check_environment

pytestmark = pytest.mark.usefixtures("as_a_user")


@pytest.fixture(scope="module", autouse=True)
def as_a_user():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


class Space:
    def __init__(self, shape=None, n=None, low=-1.0, high=1.0):
        self.shape, self.n, self.low, self.high = shape, n, low, high


class Walk:
    """A random walk from a seed: the reward is the place; ends at five, or never if asked."""

    def __init__(self, *, last=5, action_space=None, **wrong):
        self.observation_space, self.action_space = Space(shape=(1, 2)), action_space or Space(n=2)
        self.last, self.wrong, self.resets = last, wrong, 0

    def seen(self):
        return np.array([[self.place, self.steps]], np.float32)

    def reset(self, *, seed=None):
        self.random, self.steps, self.resets = np.random.default_rng(seed), 0, self.resets + 1
        self.place = self.random.normal()
        return self.seen(), {}

    def step(self, action):
        self.place += self.random.normal() + float(np.sum(action))
        self.steps += 1
        if self.steps == 3 and "error" in self.wrong:
            raise self.wrong["error"]
        shown = self.wrong.get("observation", self.seen()), self.wrong.get("reward", self.place)
        return *shown, self.wrong.get("terminated", self.steps == self.last), False, {}


def walked(environment, key, actions):
    """Return states, observations and rewards of an episode."""
    state, observation = environment.reset(key)
    states, seen, rewards = [state], [observation], []
    for action in actions:
        state, step = environment.step(state, jnp.asarray(action), key)
        states.append(state)
        seen.append(step.observation)
        rewards.append(float(step.reward))
    return states, np.array(seen), rewards, step


def make_agent(inputs, actions, **options):
    cell = ft.LRU.factory(state_size=3)
    network = ft.Network(
        inputs, 1 + actions, model_size=4, depth=1, cell=cell, key=jax.random.key(0)
    )
    return rl.Agent(network, rl.ActorCritic(), rule=ft.ONLINE, **options)


def test_a_state_brings_any_copy_to_the_same_place():
    """Episodes in turn, from states in the middle, and in another process: equal results."""
    walk, actions = Walk(), [0, 1, 1, 0, 1]
    environment = _gymnasium.as_environment(walk)
    check_environment(environment)
    keys = jax.random.split(jax.random.key(3), 2)
    states, seen, rewards, last = walked(environment, keys[0], actions)
    assert bool(last.terminated) and not bool(last.truncated)
    other = walked(environment, keys[1], actions)
    assert (np.abs(other[1] - seen)[:, 0] > 1e-6).all()
    for again in (environment, _gymnasium.as_environment(Walk())):
        for t in (4, 1, 3, 0, 2):
            _, step = again.step(states[t], jnp.asarray(actions[t]), keys[0])
            np.testing.assert_array_equal(step.observation, seen[t + 1])
            assert float(step.reward) == rewards[t]
            # Another action at the same place is another episode from there on.
            _, step = again.step(states[t], jnp.asarray(1 - actions[t]), keys[0])
            assert float(step.reward) != rewards[t]
    assert walk.resets == 0, "the environment that was given is copied"


def test_no_more_environments_are_kept_than_allowed(monkeypatch):
    monkeypatch.setattr(_live, "MOST_LIVE", 3)
    environment = _gymnasium.as_environment(Walk())
    keys = jax.random.split(jax.random.key(0), 6)
    first = [environment.reset(key)[0] for key in keys]
    live = environment._live
    assert len(live._episodes) == 3 and len(live._episodes) + len(live._free) <= 6
    rewards = [float(environment.step(state, jnp.array(1), keys[0])[1].reward) for state in first]
    assert rewards == [walked(_gymnasium.as_environment(Walk()), key, [1])[2][0] for key in keys]


def test_an_episode_is_cut_at_the_limit_and_its_actions_fit():
    environment = _gymnasium.as_environment(Walk(last=None, action_space=Space(shape=(2,))))
    environment.limit = 4
    actions = np.full((4, 2), 3.0)
    states, seen, rewards, last = walked(environment, jax.random.key(0), actions)
    assert bool(last.truncated) and not bool(last.terminated)
    noise = np.random.default_rng(int(states[0].seed))
    # Continuous actions are clipped to their bounds.
    place = noise.normal() + np.cumsum(noise.normal(size=4) + 2.0)
    np.testing.assert_allclose(rewards, place, atol=1e-12)


@pytest.mark.full
def test_an_agent_is_evaluated_in_an_object_of_gymnasium():
    agent = make_agent(2, 2, batch_size=3)
    found = agent.evaluate(agent.init(), Walk(), 7, greedy=False)
    np.testing.assert_array_equal(found.lengths, [5] * 7)
    assert len(set(found.returns.tolist())) == 7
    again = agent.evaluate(agent.init(), Walk(), 7, greedy=False)
    np.testing.assert_array_equal(found.returns, again.returns)


@pytest.mark.parametrize(
    ("wrong", "error", "match"),
    [
        ({"observation": np.zeros(3)}, ValueError, "an observation of 3 elements, its space has 2"),
        (
            {"observation": np.array(["a", "b"])},
            ValueError,
            "as observation, expected real numbers",
        ),
        ({"reward": np.zeros(2)}, ValueError, r"a reward of shape \(2,\)"),
        ({"reward": None}, ValueError, "as reward, expected real numbers"),
        ({"terminated": 0}, TypeError, "terminated is int64, expected booleans"),
    ],
)
def test_what_an_environment_does_wrong_is_named(wrong, error, match):
    live = _live.Live(partial(Walk, **wrong), None)
    live.reset(0)
    with pytest.raises(error, match=match):
        live.step(0, 0, [], 0)


def test_an_error_of_an_environment_leaves_a_compiled_program_as_it_is():
    agent = make_agent(2, 2)
    with pytest.raises(RuntimeError, match="^the motor is hot$"):
        agent.evaluate(agent.init(), Walk(error=RuntimeError("the motor is hot")), 2)


SMALL = {
    "network": NetworkConfig(1, 4, LRU(3)),
    "log_every": 10,
    "checkpoint_every": 20,
    "steps": 60,
}


def registered():
    gymnasium = pytest.importorskip("gymnasium")
    if "Walk-v0" not in gymnasium.registry:
        Box, Discrete = gymnasium.spaces.Box, gymnasium.spaces.Discrete

        class Proper(Walk, gymnasium.Env):
            def __init__(self):
                super().__init__(last=7)
                self.observation_space, self.action_space = (
                    Box(-np.inf, np.inf, (1, 2)),
                    Discrete(2),
                )

            def reset(self, *, seed=None, options=None):
                return super().reset(seed=seed)

        gymnasium.register("Walk-v0", entry_point=Proper)
    return rl.Gymnasium("Walk-v0")


@pytest.mark.full
def test_a_run_goes_on_bit_for_bit_within_an_episode(tmp_path, monkeypatch):
    config = RLConfig(environment=registered(), environments=2, evaluation_episodes=3, **SMALL)
    whole = _run.train(config, tmp_path / "whole", show_progress=False)
    with monkeypatch.context() as patch:
        patch.setattr("foretrace._runs.session.Stop", StopAfterThree)
        stopped = _run.train(config, tmp_path / "run", show_progress=False)
    assert stopped.step == 30 and stopped.scores is None
    # A new process has no environment that stands within the episodes.
    again = dataclasses.replace(config, environment=rl.Gymnasium("Walk-v0"))
    _run._compiled.cache_clear()
    again = _run.train(again, tmp_path / "run", resume=True, show_progress=False)
    assert again.scores == whole.scores and np.isfinite(whole.scores["evaluation"])
    ours, theirs = (load_file(run.run.checkpoint) for run in (again, whole))
    for name, array in ours.items():
        if name != "__extra__":
            np.testing.assert_array_equal(array, theirs[name], err_msg=name)
    grid = _report.table(whole.run.path)
    assert "Walk-v0" in grid.title and "3 episodes without learning" in list(grid.columns[0].cells)


@pytest.mark.full
def test_an_environment_of_ones_own_is_run_from_the_command_line(tmp_path, capsys, monkeypatch):
    registered()
    monkeypatch.setitem(sys.modules, "walks", types.ModuleType("walks"))
    options = "--id walks:Walk-v0 --hide 1 --environments 2".split()
    options += "--steps 40 --log-every 20 --checkpoint-every 20 --environment.limit 4".split()
    options += [
        *"--network.depth 1 --network.model-size 4 --run-dir".split(),
        str(tmp_path / "run"),
    ]
    small = ["--cell", "lru", "--state-size", "3"]
    assert cli.main(["rl", "gymnasium", *options, *small]) == 0
    out = capsys.readouterr().out
    assert "walks:Walk-v0 (without elements 1)" in out and "20 episodes without learning" in out
    lines = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    assert sum(line["episodes"] for line in lines if line["kind"] == "train") == 20
    assert cli.main(["check", str(tmp_path / "run")]) == 0
    assert cli.main(["resume", str(tmp_path / "run"), "--steps", "60"]) == 0
    assert "step 60 of 60" in capsys.readouterr().out


@pytest.mark.full
def test_ids_that_cannot_be_run_are_named():
    pytest.importorskip("gymnasium")
    with pytest.raises(ValueError, match="Gymnasium\\(id='Chess-v9'\\) cannot be made"):
        _ = rl.Gymnasium("Chess-v9").observation_size
    with pytest.raises(ValueError, match="has continuous actions"):
        _run.build(RLConfig(environment=rl.Gymnasium("Pendulum-v1"), **SMALL))
    with pytest.raises(ValueError, match=r"limit=0"):
        rl.Gymnasium(limit=0)
    with pytest.raises(ValueError, match="environment=.* must be MemoryChain or"):
        RLConfig(environment=_gymnasium.as_environment(Walk()))
    # A number of a place is flattened to one input for each.
    assert rl.Gymnasium("FrozenLake-v1").observation_size == 16
