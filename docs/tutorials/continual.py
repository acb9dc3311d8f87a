# %% [markdown]
# # Continual learning across resumes
#
# After this page you can let a network learn from a stream that changes, stop it at any moment, and go on in another
# process exactly where it stopped.
#
# The stream: the network has to recall an earlier number. Every 6,000 steps the rule changes: three steps ago, one step
# ago, the negative of three steps ago.

# %%
from pathlib import Path

import foretrace as ft
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

steps, chunk = 18_000, 20
xs = jax.random.normal(jax.random.key(1), (steps, 1))
ys = jnp.concatenate(
    [
        jnp.roll(xs, 3, axis=0)[:6000],
        jnp.roll(xs, 1, axis=0)[6000:12_000],
        -jnp.roll(xs, 3, axis=0)[12_000:],
    ]
)


def make_learner():
    """Return the learner; every process makes the same one."""
    network = ft.Network(
        1,
        1,
        model_size=32,
        depth=2,
        cell=ft.LRU.factory(state_size=32),
        key=jax.random.key(0),
    )
    return ft.Learner(
        network,
        rule="online",
        optimizer=ft.adamw(2e-3),
        loss=ft.losses.squared_error,
        mean_loss=True,
    )


# %% [markdown]
# ## A process that begins, goes on, and stops
#
# The learner's state is all that changes. What the learner cannot know, the place in the data, is kept beside it.


# %%
def work(path, until):
    """Learn up to a step and stop, as a process does that is killed and started again."""
    learner, losses = make_learner(), []
    if Path(path).exists():
        state, begin = ft.load(path, learner), ft.read_extra(path)["step"]
    else:
        state, begin = learner.init(), 0
    for t in range(begin, until, chunk):
        state, info = learner.step(state, xs[t : t + chunk], ys[t : t + chunk])
        losses.append(float(info.loss))
    ft.save(path, state, extra={"step": until})
    return losses


losses = [work("stopped.safetensors", until) for until in (5000, 6100, 13_000, 18_000)]
print([len(part) for part in losses], "chunks in four processes")

# %%
figure, axes = plt.subplots(figsize=(7, 2.8))
start = 0
for part in losses:
    axes.semilogy(chunk * np.arange(start, start + len(part)), part, lw=0.7)
    start += len(part)
axes.set(xlabel="step (one colour for each process)", ylabel="loss of a step")

# %% [markdown]
# The loss jumps where the rule changes, and falls again; nothing happens where the process was stopped.
#
# ## Is it exact?
#
# A learner that was never stopped ends with the same parameters, bit for bit.

# %%
whole = work("whole.safetensors", steps)
same = np.array_equal(whole, np.concatenate(losses))
print("every loss is the same:", same)
assert same

# %% [markdown]
# Files are written beside their name and renamed, so that a crash leaves the old one whole. `foretrace stream` and
# `foretrace train` do all of this by themselves, on Ctrl-C as well: [stopping and
# resuming](../streams.md#stopping-and-resuming).
