"""Environments of gymnasium: step by step in Python, as pure functions, and in runs."""

import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rl_cases import Space, Walk, assert_same, make_agent
from tiers import fast, slow

from foretrace import rl
from foretrace.cli import _main as cli
from foretrace.rl import _live
from foretrace.rl._gymnasium import as_environment


@pytest.mark.parametrize("ends", fast([{"cut": 3}, {"last": 3}, {"last": None}]))
def test_an_agent_lives_in_an_environment_of_gymnasium(ends):
    agent = make_agent()
    environment, twin, by_hand = Walk(**ends), Walk(**ends), agent.init()
    moments = list(rl.interact(agent, by_hand, environment, 7, seed=7))
    seen, total = twin.reset(seed=7)[0], 0.0
    given = rl.Transition(seen.ravel(), first=True)
    for moment in moments:
        action, by_hand, _ = agent.step(by_hand, given)
        last, (reward,), ended, cut, _ = twin.step(int(action))
        seen, total = twin.reset()[0] if ended or cut else last, total + reward
        given = rl.Transition(seen.ravel(), reward, ended, cut, final_observation=last.ravel())
        expected = agent.step(by_hand, given)[1]
        assert_same(*(s._replace(key=None) for s in (moment.state, expected)), 0)
        assert moment.reward == np.float32(reward)
        assert moment.total == (pytest.approx(total) if ended or cut else None)
        total = 0.0 if ended or cut else total
    assert environment.seeds == [7, *[None] * (len(twin.seeds) - 1)]


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


def test_an_error_of_an_environment_leaves_a_compiled_program_as_it_is():
    agent = make_agent()
    with pytest.raises(RuntimeError, match="^the motor is hot$"):
        agent.evaluate(agent.init(), Walk(error=RuntimeError("the motor is hot")), 2)


@pytest.mark.full
@pytest.mark.parametrize(
    ("task", "said"),
    [
        (
            "gymnasium --id walks:Pendulum-v1 --hide 1",
            ("walks:Pendulum-v1 (without elements", "Actions are clipped to [-2, 2]."),
        ),
        slow("gymnax --environment.name Swimmer-misc", ("Actions are clipped to [-1, 1].",)),
    ],
)
def test_environments_of_others_are_run_from_the_command_line(
    task, said, tmp_path, capsys, monkeypatch
):
    pytest.importorskip(task.split()[0])
    monkeypatch.setitem(sys.modules, "walks", types.ModuleType("walks"))
    words = f"rl {task} --steps 20 --checkpoint-every 10 --log-every 10 --network.depth 1"
    words += " --cell lru --state-size 3 --model-size 4 --evaluation-episodes 2 --run-dir"
    assert cli.main([*words.split(), str(tmp_path)]) == 0
    table = " ".join(capsys.readouterr().out.split())
    assert "step 20 of 20" in table and "2 episodes without" in table
    assert all(words in table for words in said)


@pytest.mark.full
def test_a_number_of_a_place_is_one_input_for_each():
    pytest.importorskip("gymnasium")
    assert rl.Gymnasium("FrozenLake-v1").observation_size == 16
