"""How stale are sensitivities if parameters change at every row, and does it matter?

    python -m benchmarks.streams.stale

A stream whose class is the sign of the input three rows back; LRU layers, ONLINE, AdamW clipped at 1, an update at
every row, float64. Now and then the gradient of the row that comes is compared with the exact one, of which state and
sensitivity were recomputed over the whole past with the parameters of now. Policies:

    keep       e stays what it was
    decay      e is multiplied by a factor after every update
    refresh    every K rows state and sensitivity are recomputed with the parameters of now from the carry L rows ago

`e` compares with the state as it is and the exact sensitivity: what is due to e alone.
"""

import itertools
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

import foretrace as ft
from benchmarks import ledger

FILE = ledger.RECORDS / "stale.jsonl"
BACK, K, PLACES = 3, 16, 4
"""Rows back; rows between refreshes; refreshes that the replay reaches back, L = K * PLACES."""
NETWORKS = {"tiny": (1, 16, 16), "small": (2, 32, 32)}
POLICIES = {"keep": (1.0, False), "decay 0.999": (0.999, False), "decay 0.99": (0.99, False), "refresh": (1.0, True)}
RATES = (1e-4, 1e-3, 1e-2)
LOSS = ft.losses.softmax_cross_entropy


def make_network(size, seed):
    depth, model, state = NETWORKS[size]
    return ft.Network(
        2, 2, model_size=model, depth=depth, cell=ft.LRU.factory(state_size=state), key=jax.random.key(seed)
    )


def compare(a, b):
    a, b = (jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree.blocks.cell)]) for tree in (a, b))
    size = jnp.linalg.norm(b)
    return jnp.stack([a @ b / (jnp.linalg.norm(a) * size), jnp.linalg.norm(a - b) / size])


@cache
def program(size, rows, every):
    """Return a compiled run: accuracy of each part of `every` rows, and comparisons behind it."""
    network = make_network(size, 0)
    # The rate is a number of the program: AdamW's update is proportional to it.
    learner = ft.Learner(network, rule=ft.ONLINE, optimizer=ft.adamw(1.0), loss=LOSS, train_encoder=True)

    def run(network, seed, rate, decay, refresh):
        xs = jnp.stack([jax.random.normal(jax.random.key(1000 + seed), (rows + 1,)), jnp.zeros(rows + 1)], axis=1)
        ys = jnp.concatenate([jnp.zeros(BACK, jnp.int32), (xs[:-BACK, 0] > 0).astype(jnp.int32)])

        def row(now, t):
            state, ring = now
            before = state.network
            state, info = learner.step(state, xs[t][None], ys[t][None])
            scaled = jax.tree.map(lambda p, q: p + rate * (q - p), before, state.network)
            carry = state.carry._replace(e=jax.tree.map(lambda leaf: leaf * decay, state.carry.e))

            def again(_):
                old = jax.tree.map(lambda leaf: leaf[0], ring)
                past = lax.dynamic_slice(xs, (t + 1 - K * PLACES, 0), (K * PLACES, 2))
                new = ft.forward(scaled, old, past, rule=ft.ONLINE)[1]
                return new, jax.tree.map(lambda leaf, one: jnp.concatenate([leaf[1:], one[None]]), ring, new)

            due = ((t + 1) % K == 0) & refresh
            kept = jax.tree.map(lambda leaf, one: jnp.concatenate([leaf[1:], one[None]]), ring, carry)
            late = due & (t + 1 >= K * PLACES)
            carry, ring = lax.cond(late, again, lambda _: (carry, optax.tree.where(due, kept, ring)), None)
            return (state._replace(network=scaled, carry=carry), ring), jnp.argmax(info.outputs[0]) == ys[t]

        def part(now, number):
            now, right = lax.scan(row, now, number * every + jnp.arange(every))
            state, t = now[0], (number + 1) * every
            # The past at the end of a window of fixed length; what stands in front of it is cut off.
            window = jnp.roll(xs[:rows], -t, axis=0)
            reset = jnp.arange(rows) == rows - t
            exact = ft.forward(state.network, ft.init_carry(network, ft.ONLINE), window, rule=ft.ONLINE, reset=reset)[1]
            x, y = xs[t][None], ys[t][None]

            def gradient(carry):
                return ft.gradient(state.network, carry, x, y, rule=ft.ONLINE, loss=LOSS)[1]

            found, truth = gradient(state.carry), gradient(exact)
            alone = gradient(state.carry._replace(e=exact.e))
            return now, (right.mean(), compare(found, truth), compare(found, alone))

        state = learner.init()._replace(network=network)
        ring = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], PLACES, axis=0), state.carry)
        return lax.scan(part, (state, ring), jnp.arange(rows // every))[1]

    return jax.jit(run)


def measure(cell):
    """Return for each seed accuracies and comparisons along the way."""
    run = program(cell["size"], cell["rows"], cell["every"])
    decay, refresh = POLICIES[cell["policy"]]
    seeds = range(cell["seeds"])
    results = [run(make_network(cell["size"], seed), seed, cell["rate"], decay, refresh) for seed in seeds]
    right, both, alone = (np.asarray(part).round(4).tolist() for part in zip(*results, strict=True))
    return {"accuracy": right, "cosine_and_error": both, "cosine_and_error_of_e": alone}


def main():
    parser = ledger.parser(__doc__)
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--every", type=int, default=250)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--sizes", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    asked = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    setting = {"rows": asked.rows, "every": asked.every, "seeds": asked.seeds, "K": K, "L": K * PLACES}
    runs = itertools.product(asked.sizes, RATES, POLICIES)
    ledger.each(FILE, [{"size": s, "rate": r, "policy": p, **setting} for s, r, p in runs], measure)


if __name__ == "__main__":
    main()
