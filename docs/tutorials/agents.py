# %% [markdown]
# # An agent that remembers
#
# After this page you can let an agent learn from one stream of experience, see whether it
# remembers, and look into one of its episodes. The first task is a bandit with a cue. The last
# task is a maze in which the agent no longer sees a sign when it has to use it.
#
# ## A bandit with a cue
#
# In the memory chain, the agent first sees a cue, 1 or -1. After `length` steps it is asked for
# the cue, and the episode ends with its answer. The reward is 1 if the answer agrees with the cue,
# and -1 if not. With `length=1`, this is a bandit whose best arm depends on the cue of one step
# before.

# %%
import foretrace as ft
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

chain = ft.rl.MemoryChain(length=1)


def make_network(environment, size, depth):
    """Return a network with the value and one logit for each action as outputs."""
    return ft.Network(
        environment.observation_size,
        1 + environment.action_count,
        model_size=size,
        depth=depth,
        cell=ft.LRU.factory(state_size=size),
        key=jax.random.key(0),
    )


agent = ft.rl.Agent(
    make_network(chain, 16, 1),
    ft.rl.ActorCritic(),
    rule="online",
    discount=0.9,
    optimizer=optax.adam(3e-3),
)
step_in = jax.jit(lambda *now: ft.rl.step_or_reset(chain, *now))

place, observation = chain.reset(jax.random.key(2))
start = ft.rl.Transition(observation, first=True)
action, state, info = agent.step(agent.init(jax.random.key(1)), start)
rewards = []
for key in jax.random.split(jax.random.key(3), 600):
    place, after, observation = step_in(place, action, key)
    transition = ft.rl.Transition(observation, after.reward, after.terminated)
    action, state, info = agent.step(state, transition)
    if after.terminated:
        rewards.append(float(after.reward))

print("first 50 episodes:", np.mean(rewards[:50]), " last 50:", np.mean(rewards[-50:]))

# %% [markdown]
# `step` is the whole interface: it learns from the outcome of the last action, and chooses the
# next action. No experience is replayed, and no earlier step is computed again.
#
# ## A longer wait, with and without gradients through time
#
# This environment consists of two pure functions, so JAX can compile it together with the agent.
# The same loop then runs many times as fast.


# %%
def live(environment, agent, steps):
    """Let an agent live in an environment; return its state and the return of each episode."""

    def step(now, key):
        action, state, place = now
        place, after, following = ft.rl.step_or_reset(environment, place, action, key)
        transition = ft.rl.Transition(
            following,
            after.reward,
            after.terminated,
            after.truncated,
            final_observation=after.observation,
        )
        action, state, _ = agent.step(state, transition)
        return (action, state, place), (
            after.reward,
            after.terminated | after.truncated,
        )

    @jax.jit
    def run(state, key):
        start, *keys = jax.random.split(key, 2)
        place, observation = environment.reset(start)
        first = ft.rl.Transition(observation, first=True)
        action, state, _ = agent.step(state, first)
        keys = jax.random.split(keys[0], steps)
        (_, state, _), found = jax.lax.scan(step, (action, state, place), keys)
        return state, found

    state, (rewards, ends) = run(agent.init(jax.random.key(1)), jax.random.key(2))
    last = np.flatnonzero(ends)
    return state, last, np.diff(np.cumsum(np.asarray(rewards, float))[last], prepend=0)


def smooth(values, width=50):
    """Return the mean of the last values."""
    return np.convolve(values, np.ones(width) / width, mode="valid")


chain = ft.rl.MemoryChain(length=16)
figure, axes = plt.subplots(figsize=(7, 2.8))
for rule in ("online", "spatial"):
    agent = ft.rl.Agent(make_network(chain, 32, 1), ft.rl.ActorCritic(), rule=rule)
    _, ends, returns = live(chain, agent, 25_000)
    (line,) = axes.plot(ends[49:], smooth(returns))
    place = (2_900, 0.75) if rule == "online" else (8_800, 0.6)
    axes.text(*place, rule, color=line.get_color(), ha="right")
    print(f"{rule}: {returns[-200:].mean():.2f} over the last 200 episodes")
axes.set(
    title="With gradients through time, the agent learns the cue earlier",
    xlabel="step",
    ylabel="return, mean of 50 episodes",
    xlim=(0, 25_000),
)
axes.grid(alpha=0.3)

# %% [markdown]
# Both agents begin with the same memory. Under `online`, the agent also learns what to write into
# this memory: the gradient of an answer reaches the cue of 16 steps ago, through sensitivities
# that are carried forward in time. Under `spatial`, the memory stays as it was initialised, and
# the agent only learns to read it. This is an example with one seed; [Let an agent
# remember](../agents.md#measured) has five seeds and longer chains.
#
# ## The T-maze
#
# A corridor ends at a junction. The goal is north or south of the junction, and a sign at the
# start says where. The agent has to walk to the junction and remember the sign until it arrives.
# The best return is 4.

# %%
maze = ft.rl.TMaze(corridor=6)
agent = ft.rl.Agent(make_network(maze, 32, 1), ft.rl.ActorCritic(), rule="online")
learned, ends, returns = live(maze, agent, 20_000)
without_memory = (4 - 0.1) / 2

figure, axes = plt.subplots(figsize=(7, 2.8))
axes.plot(ends[49:], smooth(returns))
for height, name in ((4, "the best possible"), (without_memory, "without memory")):
    axes.axhline(height, color="0.5", linestyle="--")
    axes.text(20_000, height + 0.08, name, color="0.4", ha="right")
axes.set(
    title="The agent learns to use the sign",
    xlabel="step",
    ylabel="return, mean of 50 episodes",
    ylim=(0, 4.6),
)
axes.grid(alpha=0.3)
print(f"{returns[-200:].mean():.2f} over the last 200 episodes")

# %% [markdown]
# ## One episode of each kind
#
# What has the agent learned? An episode with the goal in the north and an episode with the goal in
# the south differ only in their first observation. After it, the agent sees the same corridor in
# both episodes, and only its memory can tell the episodes apart.


# %%
def episode(network, north):
    """Return the places of an episode, and the value and the logits of the actions there."""
    keys = jax.random.split(jax.random.key(0), 20)
    place, observation = next(
        begun for begun in map(maze.reset, keys) if begun[0].north == north
    )
    carry, found = None, []
    while True:
        outputs, carry = ft.forward(network, carry, observation[None])
        found.append((int(place.place), *map(float, outputs[0])))
        place, step = maze.step(place, jnp.argmax(outputs[0, 1:]), keys[0])
        observation = step.observation
        if step.terminated or step.truncated:
            return np.array(found), float(step.reward)


figure, axes = plt.subplots(figsize=(7, 2.8))
for north, colour in ((True, "C0"), (False, "C1")):
    found, reward = episode(learned.network, north)
    name = "goal in the " + ("north" if north else "south")
    preference = found[:, 2] - found[:, 4]
    axes.plot(found[:, 0], preference, colour, marker="o", ms=3)
    axes.annotate(
        name, (maze.corridor + 0.1, preference[-1]), color=colour, va="center"
    )
    print(f"{name}: {len(found)} steps, last reward {reward:.1f}")
axes.axhline(0, color="0.5", linestyle=":")
axes.set(
    title="At the junction, the agent follows its memory of the sign",
    xlabel="place in the corridor",
    ylabel="log-odds, north : south",
    xlim=(-0.2, maze.corridor + 2),
)

# %% [markdown]
# On the way to the junction, the agent sees the same in both episodes, and its preference is nearly
# the same in both. At the junction, its memory of the sign makes it turn north in one episode and south in the
# other.
#
# Now try a longer corridor, another rule, or another cell: `foretrace rl t-maze
# --environment.corridor 20` shows its progress, and writes a record and a checkpoint, from which
# `foretrace resume` continues. [Let an agent remember](../agents.md) has all options, other tasks,
# environments of your own, and results.
