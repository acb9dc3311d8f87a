"""The network and learner that most benchmarks measure, and how calls are timed in turn."""

import statistics
import time

import jax
import jax.numpy as jnp
import optax
from jax import lax

import foretrace as ft


def lru_network(inputs, outputs, size, depth, *, modules=None, key=None, **ring):
    """Return a network of LRU layers.

    Args:
        inputs: numbers of a row.
        outputs: numbers of a prediction.
        size: features of a layer.
        depth: number of layers.
        modules: modules of a layer; as many as features if None.
        key: key of the parameters; that of seed 0 if None.
        ring: `r_min` and `r_max` of the eigenvalues.
    """
    cell = ft.LRU.factory(state_size=modules or size, **ring)
    key = jax.random.key(0) if key is None else key
    return ft.Network(inputs, outputs, model_size=size, depth=depth, cell=cell, key=key)


def modules(count):
    """Return the cells of a layer of modules, as many of each of three kinds."""
    return (
        ft.SetReset.factory(state_size=count),
        ft.SetReset.factory(state_size=count, products=False),
        ft.Rotation.factory(state_size=count),
    )


def loss_of(classes):
    """Return the loss of classes, or of numbers if there are none."""
    return ft.losses.softmax_cross_entropy if classes else ft.losses.squared_error


def module_learner(inputs, classes, cells, optimizer, rule=ft.ONLINE, *, outputs=1, seed=0):
    """Return a learner of modules under least squares, of classes or of so many numbers."""
    network = ft.ModuleNetwork(inputs, classes or outputs, cells=cells, key=jax.random.key(seed))
    options = {"optimizer": optimizer, "head": ft.heads.least_squares(), "loss": loss_of(classes)}
    return ft.Learner(network, rule=rule, warn=False, **options)


def classifier(network, rule=ft.ONLINE, **options):
    """Return a learner of classes by `ft.adamw`, if no other optimiser is among the options."""
    options = {"optimizer": ft.adamw(1e-3), "loss": ft.losses.softmax_cross_entropy} | options
    return ft.Learner(network, rule=rule, warn=False, **options)


def streamed_gradient(network, carry, xs, ys, *, chunk, rule, loss):
    """Return the sum of the gradients of the chunks of some streams, and the next carry."""

    def one(now, part):
        carry, total = now
        _, grads, carry = ft.gradient(network, carry, *part, rule=rule, loss=loss)
        return (carry, optax.tree.add(total, grads)), None

    cut = [leaf.reshape(len(leaf), -1, chunk, *leaf.shape[2:]) for leaf in (xs, ys)]
    parts = [jnp.moveaxis(leaf, 1, 0) for leaf in cut]
    (carry, total), _ = lax.scan(one, (carry, optax.tree.zeros_like(network)), parts)
    return total, carry


def timed(calls, rounds, first=1, clock=time.perf_counter):
    """Time warm calls in turn (A B A B ...), so that noise disturbs all alike; in seconds.

    Args:
        calls: functions by name.
        rounds: rounds that are timed.
        first: rounds before them, which compile.
        clock: of the wall, or of the process.
    """
    seconds = {name: [] for name in calls}
    for turn in range(first + rounds):
        for name, call in calls.items():
            start = clock()
            jax.block_until_ready(call())
            if turn >= first:
                seconds[name].append(clock() - start)
    return seconds


def ratio(seconds, over, under):
    """Return the median of the ratios of rounds."""
    return statistics.median(a / b for a, b in zip(seconds[over], seconds[under], strict=True))
