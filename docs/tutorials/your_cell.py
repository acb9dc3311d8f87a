# %% [markdown]
# # Your own cell
#
# After this page you can write a recurrent layer of your own as one step of its recurrence, check
# that its online gradients are right, and train a network of such layers.
#
# You write three methods. foretrace adds time, batches, chunks, rules and derivatives.

# %%
import equinox as eqx
import foretrace as ft
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np


class Leaky(ft.AbstractCell):
    """h' = a * h + (1 - a) * tanh(W x + u * h),  a = sigmoid(a_logit)."""

    a_logit: jax.Array
    u: jax.Array
    W: jax.Array
    input_size: int = eqx.field(static=True)
    state_size: int = eqx.field(static=True)

    def __init__(self, input_size, *, key):
        self.input_size = self.state_size = input_size
        self.a_logit = jnp.linspace(-1.0, 4.0, input_size)  # from fast to slow
        self.u = jnp.zeros(input_size)
        self.W = jax.random.normal(key, (input_size, input_size)) / jnp.sqrt(input_size)

    def coefficients(self):
        return ft.Coefficients(
            recurrent={"a": jax.nn.sigmoid(self.a_logit), "u": self.u},
            feedforward={"W": self.W},
        )

    def init_state(self):
        return jnp.zeros(self.state_size)

    def step(self, theta, own, others, x):
        a, u = theta.recurrent["a"], theta.recurrent["u"]
        return a * own + (1 - a) * jnp.tanh(theta.feedforward["W"] @ x + u * own)


# %% [markdown]
# `own` and `others` are both the state of the step before. A unit reads its own past from `own`,
# and the past of other units from `others`. This cell never reads `others`, so its units are
# independent, and the online gradient of the layer is exact. foretrace detects this:

# %%
cell = Leaky(3, key=jax.random.key(0))
print("independent units:", cell.independent)

# %% [markdown]
# ## Check it
#
# `check_cell` compares values and gradients with their definitions, with finite differences, and
# with every other way to compute them. Each comparison is a *law*. If a law is broken, an error
# names the law.

# %%
report = ft.testing.check_cell(cell)
print(report)

# %% [markdown]
# ## Train it
#
# A network makes its cells with `Leaky.factory()`. The target is the sum of the last eight inputs.
# A network without memory stays at a loss near 3.5.

# %%
network = ft.Network(
    1, 1, model_size=24, depth=2, cell=Leaky.factory(), key=jax.random.key(0)
)
learner = ft.Learner(
    network,
    rule=ft.ONLINE,
    optimizer=ft.adamw(3e-3),
    loss=ft.losses.squared_error,
    mean_loss=True,
)
xs = jax.random.normal(jax.random.key(1), (6000, 1))
ys = jnp.convolve(xs[:, 0], jnp.ones(8))[:6000, None]
state, losses = learner.init(), []
for t in range(0, 6000, 20):
    state, info = learner.step(state, xs[t : t + 20], ys[t : t + 20])
    losses.append(float(info.loss))
print(
    "first and last 50 chunks:",
    np.mean(losses[:50]).round(3),
    np.mean(losses[-50:]).round(3),
)

figure, axes = plt.subplots(figsize=(7, 2.6))
axes.plot(200 * np.arange(1, 31), np.reshape(losses, (30, 10)).mean(axis=1), "C0")
axes.axhline(3.5, color="0.5", linestyle="--")
axes.text(6000, 3.6, "without memory", color="0.5", ha="right", va="bottom")
axes.set(title="The new cell learns the sum", xlabel="step", ylabel="loss, mean of 200")
axes.set_ylim(0, None)

# %% [markdown]
# Next: [Write a cell](../extending.md) explains dense, linear and complex cells, and modules of
# Equinox and Flax.
