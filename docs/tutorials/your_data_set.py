# %% [markdown]
# # Sequences of your own
#
# After this page you can train a network on an array of sequences, each with a label. You can hold
# out sequences for validation and stop early, in Python and from the command line.
#
# The array `xs` has the shape `(N, T, F)`: sequences, steps, features. `ys` has one class for each
# sequence. The data of this page are synthetic: two noisy sensors of a wheel. The class is the
# speed of the wheel.

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
# `ft.fit` shuffles the sequences, makes batches, holds out a tenth for validation, and returns the
# network of the best epoch. It learns whole sequences by backpropagation through time; `rule=`
# [chooses another rule](../rules.md). Each sequence has one label, which is compared with the
# output of the last step. Pad sequences of different lengths; `mask` says which steps are not
# padding.

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
epochs = np.arange(1, len(found.losses) + 1)
axes.plot(epochs, found.losses, "C0")
axes.plot(epochs, found.validation_losses, "C1")
axes.text(2.1, found.losses[1], "training", color="C0")
axes.text(1.9, found.validation_losses[1] - 0.1, "validation", color="C1", ha="right")
axes.set(title="Both losses fall", xlabel="epoch", ylabel="loss", ylim=(0, None))

# %% [markdown]
# ## From the command line
#
# Write the arrays into one file. `foretrace train --data` then trains and validates a network,
# writes checkpoints, can be resumed after Ctrl-C, and prints a table. `ys` may also hold a class
# for every step, or real numbers. The file may also be parquet.
# [`OwnSequences`](../api/training.md#foretrace.tasks.own.OwnSequences) lists the forms of the
# data.

# %%
np.savez("wheels.npz", xs=xs, ys=ys)
command = "train --data wheels.npz --steps 150 --model-size 32 --run-dir wheels-run"
main(shlex.split(command))

# %% [markdown]
# In a terminal, the command is `foretrace train --data wheels.npz --steps 150`. The command uses
# the class of a sequence as the target of every step, and predicts the class by the mean of the
# outputs.
#
# Next: [choose a rule](../rules.md), [search settings](../scale.md#compare-many-runs), [load the
# checkpoint](../howto/save.md#load-what-a-command-has-trained).
