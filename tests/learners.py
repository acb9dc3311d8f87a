"""Small learners of every cell, rule and optimiser: what every format of a graph must hold."""

from functools import cache, partial, wraps

import jax
import optax
from cases import CELLS, RULES
from gradients import make_network

import foretrace as ft


def once(make):
    """Return a function that makes equal things once in each mode of the tests."""
    made = cache(lambda exact, *given, **options: make(*given, **options))
    return wraps(make)(lambda *given, **by: made(jax.config.jax_enable_x64, *given, **by))


network_of = once(make_network.__wrapped__)


@once
def make_learner(cell="lru", rule=ft.ONLINE, loss=ft.losses.squared_error, outputs=2, **options):
    network = network_of(cell, 2, 3, outputs)
    options = {"optimizer": optax.adam(1e-2), "warn": False} | options
    return ft.Learner(network, rule=rule, loss=loss, **options)


def modules(outputs=3, loss=ft.losses.softmax_cross_entropy, head=True):
    cells = (ft.SetReset.factory(state_size=8), ft.Rotation.factory(state_size=4))
    network = ft.ModuleNetwork(3, outputs, cells=cells, key=jax.random.key(0))
    head = ft.heads.least_squares() if head else None
    return ft.Learner(network, rule=ft.ONLINE, loss=loss, optimizer=ft.kalman(), head=head)


OPTIMIZERS = {
    "momentum": optax.sgd(1e-3, momentum=0.9),
    "adamw": ft.adamw(1e-2),
    "clipped": optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-2)),
    "schedule": optax.adam(optax.cosine_decay_schedule(1e-2, 40)),
    "rmsprop": optax.rmsprop(1e-3),
    "lion": optax.lion(1e-3),
    "adafactor": optax.adafactor(1e-3),
    "lamb": optax.lamb(1e-3),
    "several steps": optax.MultiSteps(optax.adam(1e-2), 3).gradient_transformation(),
    "plateau": optax.chain(
        optax.adam(1e-2), optax.contrib.reduce_on_plateau(patience=2, accumulation_size=2)
    ),
    "optimistic": optax.optimistic_adam_v2(1e-3),
}


LEARNERS = {
    **{cell: partial(make_learner, cell) for cell in CELLS},
    **{
        str(case.rule): partial(
            make_learner, "gru" if "RTRL" in str(case.rule) else "lru", case.rule
        )
        for case in RULES
    },
    **{name: partial(make_learner, optimizer=optimizer) for name, optimizer in OPTIMIZERS.items()},
    "classes": partial(make_learner, loss=ft.losses.softmax_cross_entropy, outputs=4),
    "modules, a number": partial(modules, 1, ft.losses.squared_error),
    "modules, numbers": partial(modules, 2, ft.losses.squared_error),
    "modules, classes": modules,
    "modules, classes, no head": partial(modules, head=False),
}
"""Learners by name: a new cell or rule is one more."""
