"""Environments of other libraries, if installed, and the adapters' messages for unfit ones."""

import functools

import jax
import numpy as np
import pytest

import foretrace as ft
from foretrace import rl

pytestmark = [pytest.mark.usefixtures("as_a_user"), pytest.mark.full]


@pytest.fixture(scope="module", autouse=True)
def as_a_user():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@functools.cache
def make_agent(inputs=2, actions=2, **options):
    make = ft.LRU.factory(state_size=3)
    network = ft.Network(
        inputs, 1 + actions, model_size=4, depth=1, cell=make, key=jax.random.key(0)
    )
    return rl.Agent(network, rl.ActorCritic(), rule=ft.ONLINE, **options)


class Space:
    def __init__(self, shape=None, n=None):
        self.shape, self.n = shape, n


class Corridor:
    """A gymnasium interface: truncated after three steps, terminated by the last of ten."""

    observation_space, action_space = Space(shape=(1, 2)), Space(n=2)

    def __init__(self, reward=1.0):
        self.reward, self.seeds, self.steps = reward, [], 0

    def reset(self, *, seed=None):
        self.seeds.append(seed)
        self.now = 0
        return np.zeros((1, 2)), {}

    def step(self, action):
        assert action in (0, 1)
        self.now, self.steps = self.now + 1, self.steps + 1
        truncated = self.now == 3
        return np.full((1, 2), self.now), self.reward, self.steps == 10, truncated, {}


def test_an_agent_lives_in_an_environment_of_gymnasium():
    agent, environment = make_agent(), Corridor()
    steps = list(rl.interact(agent, agent.init(), environment, 10, seed=7))
    assert [step.total for step in steps] == [None, None, 3.0] * 3 + [1.0]
    assert environment.seeds == [7, None, None, None, None]
    # Every reward is learned from within its step: the cut ones with the value of the last
    # observation.
    assert [int(step.state.step) for step in steps] == list(range(1, 11))
    before = steps[1].state
    rest = 0.99 * agent._final(before, np.full(2, 3.0)).value
    # In float32, as the agent computes.
    np.testing.assert_allclose(steps[2].info.td_error, 1 + rest - before.value, atol=1e-6)
    np.testing.assert_allclose(steps[-1].info.td_error, 1 - steps[-2].state.value, atol=1e-6)


@pytest.mark.full
def test_a_kept_state_begins_an_episode_in_a_reset_environment():
    agent = make_agent()
    *_, kept = rl.interact(agent, agent.init(), Corridor(), 2)
    (again,) = rl.interact(agent, kept.state, Corridor(), 1)
    # The action that was left without an outcome is not learned from.
    assert int(again.state.step) == int(kept.state.step) + 1
    start = rl.Transition(np.zeros(2), first=True)
    states = (kept.state, agent.init()._replace(network=kept.state.network))
    (_, began, info), (_, fresh, _) = (agent.step(state, start) for state in states)
    assert float(info.td_error) == 0 and int(began.step) == int(kept.state.step)
    for part in ("carry", "trace", "value"):
        pairs = zip(*(jax.tree.leaves(getattr(s, part)) for s in (began, fresh)), strict=True)
        for a, b in pairs:
            np.testing.assert_allclose(a, b, atol=1e-12)


def test_what_does_not_fit_is_named():
    agent = make_agent()
    with pytest.raises(ValueError, match="reward holds nan"):
        list(rl.interact(agent, agent.init(), Corridor(reward=np.nan), 2))
    with pytest.raises(ValueError, match="have 2 elements, the network 3 inputs"):
        list(rl.interact(make_agent(inputs=3), agent.init(), Corridor(), 1))
    with pytest.raises(ValueError, match="has 2 discrete actions, the agent 3"):
        list(rl.interact(make_agent(actions=3), agent.init(), Corridor(), 1))
    with pytest.raises(ValueError, match="batch_size=2"):
        list(rl.interact(make_agent(batch_size=2), agent.init(), Corridor(), 1))


class Odd(Corridor):
    """Wrong in one way from the second step on."""

    def __init__(self, **wrong):
        super().__init__()
        self.wrong = wrong

    def reset(self, *, seed=None):
        observation, info = super().reset(seed=seed)
        return (observation,) if "reset" in self.wrong else (observation, info)

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        if self.now > 1:
            observation, reward = (
                self.wrong.get("observation", observation),
                self.wrong.get("reward", reward),
            )
            terminated = self.wrong.get("terminated", terminated)
        found = observation, reward, terminated, truncated, info
        return found[:4] if "step" in self.wrong else found


@pytest.mark.parametrize(
    ("wrong", "error", "match"),
    [
        (
            {"observation": np.zeros(3)},
            ValueError,
            r"observation has shape \(3,\), expected \(2,\)",
        ),
        ({"observation": np.array([0, np.inf])}, ValueError, "observation holds inf"),
        ({"observation": np.array(["1", "2"])}, ValueError, "holds no numbers"),
        ({"observation": np.array([1j, 0])}, ValueError, "they are complex128"),
        ({"reward": np.nan}, ValueError, "reward holds nan"),
        ({"reward": None}, ValueError, "reward"),
        ({"reward": np.zeros(2)}, ValueError, r"reward has shape \(2,\), expected \(\)"),
        ({"terminated": 0}, TypeError, "terminated is int64, expected booleans"),
        ({"step": True}, ValueError, r"step\(\) returned 4 values, expected \(observation, reward"),
        ({"reset": True}, ValueError, r"reset\(\) returned 1 values"),
    ],
)
def test_a_bad_environment_is_refused_and_the_last_state_goes_on(wrong, error, match):
    agent, states = make_agent(), [make_agent().init()]
    with pytest.raises(error, match=match):
        for moment in rl.interact(agent, states[0], Odd(**wrong), 4):
            states.append(moment.state)
    *_, after = rl.interact(agent, states[-1], Corridor(reward=np.array([1.0])), 4)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after.state.network))


def test_an_environment_without_end_has_no_total():
    class Endless(Corridor):
        def step(self, action):
            return np.zeros((1, 2), np.uint8), np.float32(1), False, np.bool_(False), {}

    agent = make_agent()
    steps = list(rl.interact(agent, agent.init(), Endless(), 30))
    assert all(step.total is None for step in steps) and int(steps[-1].state.step) == 30


@pytest.mark.full
def test_cartpole_of_gymnax():
    pytest.importorskip("gymnax")
    environment = rl.Gymnax("CartPole-v1")
    assert (environment.observation_size, environment.action_count) == (4, 2)
    state, observation = environment.reset(jax.random.key(0))
    ended = 0
    for i in range(30):
        state, step, observation = rl.step_or_reset(
            environment, state, jax.numpy.array(1), jax.random.key(i)
        )
        ended += bool(step.terminated)
        assert observation.shape == (4,) and not bool(step.truncated)
    assert ended >= 2
    with pytest.raises(ValueError, match="unknown; choose one of"):
        _ = rl.Gymnax("Chess").action_count
