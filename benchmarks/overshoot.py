"""Does an optimiser lose what it learned? Accuracy on "the sign of the input k rows back", an update at every row.

    python benchmarks/overshoot.py --output benchmarks/overshoot.json

One LRU layer of 16 modules and 16 features, ONLINE, clipped at 1, three seeds side by side; every window is 2,000 rows.
"""

import argparse
import json
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

import foretrace as ft
from foretrace._learner.optimizer import RECURRENT, REST, labels

WINDOW = 2000
VARIANTS = {
    "adamw": {},
    "overshoot 1": {"overshoot": 1.0},
    "overshoot 0.1": {"overshoot": 0.1},
    "eps 1e-3": {"eps": 1e-3},
    "eps 1e-2": {"eps": 1e-2},
    "b2 0.99": {"b2": 0.99},
    "overshoot 1, eps 1e-3": {"overshoot": 1.0, "eps": 1e-3},
}
RATES = (3e-3, 1e-3, 1e-2)


def make_network(seed):
    cell = ft.LRU.factory(state_size=16)
    return ft.Network(2, 2, model_size=16, depth=1, cell=cell, key=jax.random.key(seed))


def make_learner(rate, overshoot, b2, eps):
    """`ft.adamw` with settings that a program may have as numbers, so that all variants are one program."""
    groups = {
        RECURRENT: optax.adamw(rate / 2, b2=b2, eps=eps, weight_decay=0.0),
        REST: optax.adamw(rate, b2=b2, eps=eps, weight_decay=0.0),
    }
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.partition(groups, labels))
    inner = optimizer.update

    def update(grads, state, params=None, *, value, **_):
        updates, state = inner(grads, state, params)
        promise = -optax.tree.vdot(grads, updates)
        factor = jnp.where(promise > overshoot * value, overshoot * value / jnp.maximum(promise, 1e-30), 1.0)
        return optax.tree.scale(factor, updates), state

    bounded = optax.GradientTransformationExtraArgs(optimizer.init, update)
    loss = ft.losses.softmax_cross_entropy
    return ft.Learner(make_network(0), rule=ft.ONLINE, optimizer=bounded, loss=loss, warn=False)


def run(back, rows, seeds):
    """Return for each variant and rate the accuracy of each window, a list for each seed."""
    found = {}

    def member(setting, network, seed):
        learner = make_learner(**setting)
        state = learner.init()._replace(network=network, opt_state=learner.optimizer.init(network))

        def window(carry, number):
            state, past = carry
            new = jax.random.normal(jax.random.fold_in(jax.random.key(1000 + seed), number), (WINDOW,))
            xs = jnp.concatenate([past, new])

            def row(state, t):
                x, y = xs[back + t], (xs[t] > 0).astype(jnp.int32)
                state, info = learner.step(state, jnp.stack([x, 0.0])[None], y[None])
                return state, (jnp.argmax(info.outputs[0]) == y, info.gradient_norm)

            state, (right, norms) = lax.scan(row, state, jnp.arange(WINDOW))
            return (state, xs[-back:]), (right.mean(), jnp.mean(norms))

        return lax.scan(window, (state, jnp.zeros(back)), jnp.arange(rows // WINDOW))[1]

    program = jax.jit(member)
    for rate in RATES:
        for name, options in VARIANTS.items():
            setting = {"overshoot": np.inf, "b2": 0.999, "eps": 1e-8, "rate": rate} | options
            setting = {key: jnp.asarray(value, jnp.float32) for key, value in setting.items()}
            results = [program(setting, make_network(seed), jnp.int32(seed)) for seed in range(seeds)]
            accuracies, norms = (np.round(np.asarray(part), 3).tolist() for part in zip(*results, strict=True))
            found[f"{name}, rate {rate:g}"] = {"accuracy": accuracies, "gradient_norm": norms}
            shown = [f"{np.mean(a[-5:]):.3f}/{min(a[2:], default=0):.3f}" for a in accuracies]
            print(f"{back} back, {name}, rate {rate:g}: last windows/worst after two: {' '.join(shown)}", flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--back", type=int, nargs="+", default=[1, 3])
    parser.add_argument("--rows", type=int, default=30_000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    found = {}
    for back in options.back:
        began = time.perf_counter()
        found[f"{back} rows back"] = run(back, options.rows, options.seeds)
        print(f"{time.perf_counter() - began:.0f} s", flush=True)
    if options.output:
        options.output.write_text(json.dumps({"rows": options.rows, "window": WINDOW} | found, indent=1) + "\n")


if __name__ == "__main__":
    main()
