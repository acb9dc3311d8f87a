"""Environments of gymnasium: step by step in Python, as pure functions, and in runs."""

import json
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rl_cases import Space, Walk, assert_same, make_agent, registered
from tiers import fast

from foretrace import rl
from foretrace.cli import _main as cli
from foretrace.rl import _live
from foretrace.rl._gymnasium import as_environment


@pytest.mark.full
@pytest.mark.parametrize("ends", [{"cut": 3}, {"last": 3}, {"last": None}])
def test_an_agent_lives_in_an_environment_of_gymnasium(ends):
    """A state that is kept goes on in another environment, whose first step is none of its own."""
    agent = make_agent()
    environment, twin, by_hand = Walk(**ends), Walk(**ends), agent.init()
    moments = list(rl.interact(agent, by_hand, environment, 7, seed=7))
    seen, total = twin.reset(seed=7)[0], 0.0
    given = rl.Transition(seen.ravel(), first=True)
    for moment in moments:
        action, by_hand, _ = agent.step(by_hand, given)
        last, reward, ended, cut, _ = twin.step(int(action))
        seen, total = twin.reset()[0] if ended or cut else last, total + reward
        given = rl.Transition(seen.ravel(), reward, ended, cut, final_observation=last.ravel())
        expected = agent.step(by_hand, given)[1]
        assert_same(*(s._replace(key=None) for s in (moment.state, expected)), 0)
        assert moment.reward == np.float32(reward)
        assert moment.total == (pytest.approx(total) if ended or cut else None)
        total = 0.0 if ended or cut else total
    assert environment.seeds == [7, *[None] * (len(twin.seeds) - 1)]
    (again,) = rl.interact(agent, moments[1].state, Walk(), 1)
    assert int(again.state.step) == int(moments[1].state.step) + 1


@pytest.mark.full
@pytest.mark.parametrize("wrong", [{"reward": np.nan}, {"terminated": 0}])
def test_the_last_state_before_a_bad_step_goes_on(wrong):
    agent = make_agent()
    states = [agent.init()]
    with pytest.raises((ValueError, TypeError)):
        for moment in rl.interact(agent, states[0], Walk(**wrong), 4):
            states.append(moment.state)
    *_, after = rl.interact(agent, states[-1], Walk(wrong_from=1, reward=np.array([1.0])), 4)
    assert len(states) == 3 and after.reward == 1
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after.state.network))


def walked(environment, key, actions):
    """Return states, observations and rewards of an episode, and its last step."""
    state, observation = environment.reset(key)
    states, seen, rewards = [state], [observation], []
    for action in actions:
        state, step = environment.step(state, jnp.asarray(action), key)
        states.append(state)
        seen.append(step.observation)
        rewards.append(float(step.reward))
    return states, np.array(seen), rewards, step


def test_a_state_brings_any_copy_to_the_same_place():
    """Episodes in turn, from states in the middle, and in another process: equal results."""
    walk, actions = Walk(), [0, 1, 1, 0, 1]
    environment = as_environment(walk)
    rl.check_environment(environment)
    keys = jax.random.split(jax.random.key(3), 2)
    states, seen, rewards, last = walked(environment, keys[0], actions)
    assert bool(last.terminated) and not bool(last.truncated)
    other = walked(environment, keys[1], actions)
    assert (np.abs(other[1] - seen)[:, 0] > 1e-6).all()
    for again in (environment, as_environment(Walk())):
        for t in (4, 1, 2, 3, 0):
            _, step = again.step(states[t], jnp.asarray(actions[t]), keys[0])
            np.testing.assert_array_equal(step.observation, seen[t + 1])
            assert float(step.reward) == rewards[t]
            # Another action at the same place is another episode from there on.
            _, step = again.step(states[t], jnp.asarray(1 - actions[t]), keys[0])
            assert float(step.reward) != rewards[t]
    assert not walk.seeds, "the environment that was given is copied"


def test_no_more_environments_are_kept_than_allowed(monkeypatch):
    monkeypatch.setattr(_live, "MOST_LIVE", 3)
    environment = as_environment(Walk())
    keys = jax.random.split(jax.random.key(0), 6)
    first = [environment.reset(key)[0] for key in keys]
    live = environment._live
    assert len(live._episodes) == 3 and len(live._episodes) + len(live._free) <= 6
    rewards = [float(environment.step(state, jnp.array(1), keys[0])[1].reward) for state in first]
    assert rewards == [walked(as_environment(Walk()), key, [1])[2][0] for key in keys]


@pytest.mark.parametrize("last", [None, 4])
def test_an_episode_is_cut_at_the_limit_and_its_actions_fit(last):
    walk = Walk(last=last, action_space=Space(shape=(2,)))
    walk.spec = types.SimpleNamespace(max_episode_steps=4)
    environment = as_environment(walk)
    states, _, rewards, end = walked(environment, jax.random.key(0), np.full((4, 2), 3.0))
    assert (bool(end.terminated), bool(end.truncated)) == (last == 4, last is None)
    noise = np.random.default_rng(int(states[0].seed))
    # Continuous actions are clipped to their bounds.
    place = noise.normal() + np.cumsum(noise.normal(size=4) + 2.0)
    np.testing.assert_allclose(rewards, place, rtol=1e-6)


@pytest.mark.full
def test_an_agent_is_evaluated_in_an_object_of_gymnasium():
    agent = make_agent(batch_size=3)
    found, again = (agent.evaluate(agent.init(), Walk(), 7, greedy=False) for _ in range(2))
    np.testing.assert_array_equal(found.lengths, [5] * 7)
    assert len(set(found.returns.tolist())) == 7
    np.testing.assert_array_equal(found.returns, again.returns)


def test_an_error_of_an_environment_leaves_a_compiled_program_as_it_is():
    agent = make_agent()
    with pytest.raises(RuntimeError, match="^the motor is hot$"):
        agent.evaluate(agent.init(), Walk(error=RuntimeError("the motor is hot")), 2)


@pytest.mark.full
def test_an_environment_of_ones_own_is_run_from_the_command_line(tmp_path, capsys, monkeypatch):
    registered()
    monkeypatch.setitem(sys.modules, "walks", types.ModuleType("walks"))
    folder = str(tmp_path / "run")
    words = "rl gymnasium --id walks:Walk-v0 --hide 1 --environments 2 --steps 40 --log-every 20"
    words += " --checkpoint-every 20 --environment.limit 4 --network.depth 1 --network.model-size 4"
    small = ["--cell", "lru", "--state-size", "3"]
    assert cli.main([*words.split(), "--run-dir", folder, *small]) == 0
    out = capsys.readouterr().out
    assert "walks:Walk-v0 (without elements 1)" in out and "20 episodes without learning" in out
    lines = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    assert sum(line["episodes"] for line in lines if line["kind"] == "train") == 20
    assert cli.main(["check", folder]) == 0
    assert cli.main(["resume", folder, "--steps", "60"]) == 0
    assert "step 60 of 60" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("task", "bounds"),
    fast([("gymnasium --id Pendulum-v1", 2), ("gymnax --environment.name Swimmer-misc", 1)]),
)
def test_continuous_actions_are_run_from_the_command_line(task, bounds, tmp_path, capsys):
    pytest.importorskip("gymnasium")
    pytest.importorskip("gymnax")
    words = f"rl {task} --steps 20 --checkpoint-every 10 --log-every 10 --network.depth 1"
    words += " --cell lru --state-size 3 --model-size 4 --evaluation-episodes 0 --run-dir"
    assert cli.main([*words.split(), str(tmp_path)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "step 20 of 20" in said and f"Actions are clipped to [-{bounds}, {bounds}]." in said


@pytest.mark.full
def test_a_number_of_a_place_is_one_input_for_each():
    pytest.importorskip("gymnasium")
    assert rl.Gymnasium("FrozenLake-v1").observation_size == 16
