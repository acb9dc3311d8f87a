# %% [markdown]
# # A first online network
#
# After this page you can train a recurrent network while its data arrive, watch it learn, use it, and save it.
#
# The task: every step brings a random number, and the network has to say the number of three steps ago. It sees each
# number once, and its memory does not grow with the length of the stream.

# %%
import foretrace as ft
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

steps, delay = 8000, 3
xs = jax.random.normal(jax.random.key(1), (steps, 1))
ys = jnp.roll(xs, delay, axis=0)

# %% [markdown]
# ## A network and a learner
#
# A network is an encoder, equal blocks with a recurrent layer (a *cell*) in each, and a decoder. A learner adds a
# learning rule, an optimiser of [Optax](https://optax.readthedocs.io) and a loss of one step.

# %%
cell = ft.LRU.factory(state_size=32)
network = ft.Network(1, 1, model_size=32, depth=2, cell=cell, key=jax.random.key(0))
learner = ft.Learner(
    network, rule=ft.ONLINE, optimizer=optax.adam(3e-3), loss=ft.losses.squared_error
)
state = learner.init()
print(
    ft.parameter_count(network),
    "parameters;",
    ft.carry_size(network, ft.ONLINE),
    "numbers carried from step to step",
)

# %% [markdown]
# ## Learn while the data arrive
#
# `learner.step` takes the next chunk of the stream: one step, or twenty as here, or a whole sequence. It predicts,
# compares, and learns. What it needs of the past is in `state`.

# %%
losses = []
for t in range(0, steps, 20):
    state, info = learner.step(state, xs[t : t + 20], ys[t : t + 20])
    losses.append(float(info.loss) / 20)
print(
    "loss of a step, first and last 50 chunks:",
    np.mean(losses[:50]).round(3),
    np.mean(losses[-50:]).round(3),
)

figure, axes = plt.subplots(figsize=(7, 2.8))
axes.semilogy(20 * np.arange(len(losses)), losses, lw=0.8)
axes.set(xlabel="step", ylabel="loss of a step")

# %% [markdown]
# A network that cannot remember stays at 0.5, half the variance of the numbers.
#
# ## Use it
#
# `predict` moves the state on and learns nothing. `ft.forward` does the same with a network alone.

# %%
new = jax.random.normal(jax.random.key(2), (200, 1))
outputs, state = learner.predict(state, new)
figure, axes = plt.subplots(figsize=(7, 2.4))
axes.plot(new[57:97, 0], label="number of three steps ago")
axes.plot(outputs[60:100, 0], "--", label="answer")
axes.set(xlabel="step")
axes.legend()

# %% [markdown]
# ## Save it
#
# The file holds the parameters, the optimiser, the state of the stream and its sensitivities, so that learning goes on
# as if it had never stopped.

# %%
ft.save("first.safetensors", state, extra={"step": steps})
again = ft.load("first.safetensors", learner)
print(
    "parameters are the same:",
    bool((again.network.encoder.weight == state.network.encoder.weight).all()),
)

# %% [markdown]
# Next: [your own CSV](your_csv.md), [your own data set](your_data_set.md), or [how good the gradient
# is](gradient_quality.md).
