# %% [markdown]
# # Sequences of your own
#
# After this page you can train a network on an array of sequences with a label for each, hold some
# out and stop early, in Python and from the command line.
#
# The data: `xs` has the shape `(N, T, F)` (sequences, steps, features), and `ys` one class for each
# sequence. Here they are made up: two sensors of a wheel, with much noise; the class is its speed.

# %%
import shlex

import foretrace as ft
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from foretrace.cli import main

random = np.random.default_rng(0)
count, length = 600, 60
ys = random.integers(0, 3, count)
speed = np.array([0.15, 0.3, 0.5])[ys][:, None]
angle = speed * np.arange(length) + random.uniform(0, 2 * np.pi, (count, 1))
xs = np.stack([np.sin(angle), np.cos(angle)], axis=-1)
xs = (xs + random.normal(size=xs.shape)).astype(np.float32)

figure, axes = plt.subplots(figsize=(7, 2.2))
axes.plot(xs[0], label=["sensor 1", "sensor 2"])
axes.set(xlabel="step", ylabel="reading", title=f"one sequence, class {ys[0]}")
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))

# %% [markdown]
# ## In Python
#
# `ft.fit` shuffles, makes batches, holds a tenth out and keeps the network of the best epoch. It
# learns whole sequences by backpropagation through time; `rule=` [chooses another
# rule](../rules.md). The labels need not be repeated for every step: the output of the last step is
# compared with them. Sequences of different lengths are padded, and `mask` says which steps are
# there.

# %%
cell = ft.LRU.factory(state_size=32, r_min=0.8, r_max=0.99)
network = ft.Network(2, 3, model_size=32, depth=2, cell=cell, key=jax.random.key(0))
test = slice(500, None)
found = ft.fit(
    network,
    xs[:500],
    ys[:500],
    loss=ft.losses.softmax_cross_entropy,
    optimizer=ft.adamw(4e-3),
    epochs=15,
    patience=5,
    progress=False,
    key=jax.random.key(1),
)
outputs, _ = ft.forward(found.network, None, jnp.asarray(xs[test]))
print(
    f"{np.mean(np.argmax(outputs[:, -1], -1) == ys[test]):.0%}",
    "of 100 new sequences are classified rightly",
)

figure, axes = plt.subplots(figsize=(7, 2.6))
axes.plot(found.losses, label="training")
axes.plot(found.validation_losses, label="validation")
axes.set(xlabel="epoch", ylabel="loss")
axes.legend()

# %% [markdown]
# ## From the command line
#
# Write the arrays into one file; `foretrace train --data` does the rest: validation, checkpoints,
# resume after Ctrl-C, a table and a plot. `ys` may also hold a class for every step, or real
# numbers; parquet works too. [`OwnSequences`](../api/training.md#foretrace.tasks.own.OwnSequences)
# lists the forms.

# %%
np.savez("wheels.npz", xs=xs, ys=ys)
command = "train --data wheels.npz --steps 150 --model-size 32 --run-dir wheels-run"
main(shlex.split(command))

# %% [markdown]
# In a terminal: `foretrace train --data wheels.npz --steps 150`. A class is then the target at
# every step, and predicted by the mean of the outputs.
#
# Next: [choose a rule](../rules.md), [search settings](../scale.md#compare-many-runs), [load the
# checkpoint](../howto/save.md#load-what-a-command-has-trained).
