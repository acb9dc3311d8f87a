"""Noise of sampled modules in the gradient of credit depth: the copy task's network.

    python -m benchmarks.credit.module_noise     # at the start, and after 2,000 updates
    python -m benchmarks.credit.module_noise --modules 8 24

Depth 2 of the encoder, streamed in chunks of 16, through M of 64 modules of each recurrent layer,
sampled uniformly or in proportion to their time constants. The error is |g - g_all| / |g_all| of
the encoder's gradient over a batch of 50 sequences, each with a sample of its own, in four draws;
g_all is the gradient through all modules. Finished cells stay in
records/module_noise.jsonl.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree

import foretrace as ft
from benchmarks import ledger
from foretrace import experiment
from foretrace.tasks.copy import Copy

ALL = ft.rule("online(depth=2, groups=1)")
CHUNK, STREAMS, DRAWS = 16, 50, 4
CONFIG = experiment.Config(
    task=Copy(samples=20_000),
    batch_size=STREAMS,
    steps=10_000,
    network=experiment.NetworkConfig(dropout=0.1),
    optimizer=experiment.OptimizerConfig(8e-3, recurrent_factor=0.5),
)


@cache
def trained(updates):
    """Return the network after some updates by the paper's rule, on whole sequences."""
    task, learner = experiment.build(CONFIG)

    def one(state, step):
        batch = task.batch(CONFIG.seed, step, STREAMS)
        state, info = learner.step(state, batch.xs, batch.ys, mask=batch.mask)
        return state, info.loss

    state, losses = jax.jit(lambda state: lax.scan(one, state, jnp.arange(updates)))(learner.init())
    return state.network, float(np.mean(losses[-50:])) if updates else None


def streamed(network, rule, key=None):
    """Return the encoder's gradient over the chunks of a batch, as one vector."""
    batch = CONFIG.task.batch(CONFIG.seed, 10**6, STREAMS)
    carry, total = ft.init_carry(network, rule, STREAMS, key=key), 0.0
    for start in range(0, batch.xs.shape[1], CHUNK):
        part = slice(start, start + CHUNK)
        xs, ys, mask = (leaf[:, part] for leaf in (batch.xs, batch.ys, batch.mask))
        given = {"rule": rule, "loss": CONFIG.task.loss, "mask": mask}
        _, grads, carry = ft.gradient(network, carry, xs, ys, **given)
        total = total + ravel_pytree(grads.encoder)[0]
    return np.asarray(total)


def measure(cell):
    """Return the relative error of each draw."""
    network, loss = trained(cell["updates"])
    exact = streamed(network, ALL)
    sampled = f"modules={cell['modules']}, by_memory={cell['sampling'] == 'memory'}"
    rule = ft.rule(f"online(depth=2, groups=1, {sampled})")
    draws = [streamed(network, rule, jax.random.key(draw)) for draw in range(DRAWS)]
    errors = [float(np.linalg.norm(draw - exact) / np.linalg.norm(exact)) for draw in draws]
    return {
        "training_loss": loss,
        "error": round(float(np.mean(errors)), 3),
        "errors": [round(e, 3) for e in errors],
    }


def cells(modules=(8, 16, 24, 32), updates=(0, 2000)):
    """Return the cells."""
    return ledger.grid(updates=updates, modules=modules, sampling=["uniform", "memory"])


if __name__ == "__main__":
    ledger.run(__doc__, "module_noise", cells, measure)
