# %% [markdown]
# # How good is my gradient?
#
# After this page you can measure, on your own network and data, how far an online gradient is from that of
# backpropagation through time, see which layers lack credit, and buy what is missing.

# %%
import foretrace as ft
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

cell = ft.LRU.factory(state_size=16, r_min=0.9, r_max=0.99)
network = ft.Network(2, 2, model_size=16, depth=4, cell=cell, key=jax.random.key(0))
xs = jax.random.normal(jax.random.key(1), (4, 100, 2))
ys = jnp.roll(xs, 10, axis=1)
loss = ft.losses.squared_error

# %% [markdown]
# ## The cosine of each layer
#
# `ft.alignment` returns the cosine with the gradient of backpropagation through time (BPTT), for each parameter and for
# each recurrent layer. 1 is exact, 0 is no relation.

# %%
rules = ["spatial", "truncated", "online"]
cosines = {
    name: ft.alignment(network, xs, ys, rule=name, loss=loss).layer_cosine
    for name in rules
}
for name, layers in cosines.items():
    print(f"{name:10}", np.round(layers, 3))

# %% [markdown]
# The last layer of `online` is exact. Lower layers lack the errors that come back through the memory of the layers
# above. How much that is depends on the network and on the data, so it pays to measure.
#
# ## Credit through the layers above
#
# `with_depth(d)` lets errors pass through the memory of d more layers, and carries more for it.

# %%
for depth in (1, 2, 3):
    rule = ft.ONLINE.with_depth(depth)
    cosines[str(rule)] = ft.alignment(
        network, xs, ys, rule=rule, loss=loss
    ).layer_cosine
    print(
        rule,
        np.round(cosines[str(rule)], 4),
        f"{ft.carry_size(network, rule):,} numbers carried",
    )

figure, axes = plt.subplots(figsize=(7, 3))
for name, layers in cosines.items():
    axes.plot(range(1, 5), layers, "o-", label=name)
axes.set(xlabel="layer", ylabel="cosine with BPTT", xticks=range(1, 5))
axes.legend(fontsize=8)

# %% [markdown]
# At depth 3, all four recurrent layers have the gradient of BPTT. The encoder and the first norm need depth 4.
#
# ## Parameter by parameter

# %%
found = ft.alignment(network, xs, ys, rule="online", loss=loss)
for name in list(found.cosine)[:6]:
    print(f"{name:20}", np.round(found.cosine[name], 2))

# %% [markdown]
# A low cosine is not yet a bad result: [measured](../credit_evidence.md), what it costs in accuracy depends on the
# task. From the command line: `foretrace align copy`, or `foretrace align copy --checkpoint runs/…`.
#
# Next: [choose a credit depth](../credit_choose.md).
