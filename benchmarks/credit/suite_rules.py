"""Rules of the suite, the cost of their steps, and windows at the cost of 8 modules.

optimiser     Adam at `RATE` for every rule and task, gradients clipped at a norm of 1; no update
              without a label
immediate     the derivative of one step with RMSprop (Adam without momentum): "Temporal credit is
              free", arXiv 2603.28750
equal         the longest window, or chunk, that needs no more than `REFERENCE` does
"""

from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

import foretrace as ft
from benchmarks.rolling import Rolling, window_gradient
from foretrace._engine.operations import operations

RATE = 3e-3
REFERENCE = "d = 2, encoder, 8 modules"


class Way(NamedTuple):
    """A rule; or BPTT through a window or over chunks at the reference's cost."""

    rule: ft.LearningRule = ft.BPTT
    rmsprop: bool = False
    window: str | None = None
    chunk: str | None = None


WAYS = {
    "online (the paper's rule)": Way(ft.ONLINE),
    "spatial": Way(ft.SPATIAL),
    REFERENCE: Way(ft.rule("online(depth=2, groups=1, modules=8)")),
    f"{REFERENCE} by memory": Way(ft.rule("online(depth=2, groups=1, modules=8, by_memory=True)")),
    "rolling BPTT, equal operations": Way(window="operations"),
    "HYBRID": Way(ft.HYBRID),
    "immediate derivative, RMSprop": Way(ft.TRUNCATED, rmsprop=True),
    "BPTT in chunks": Way(),
    "rolling BPTT, equal memory": Way(window="memory"),
    "truncated": Way(ft.TRUNCATED),
    "BPTT in chunks, equal memory": Way(chunk="memory"),
    "d = 1": Way(ft.ONLINE.with_depth(1)),
}
"""Every rule, in the order in which they are measured."""


def runs(name, task):
    """Return whether a rule runs on a task: longer chunks on text alone, nothing slow."""
    if WAYS[name].chunk:
        return task == "text"
    dear = {"d = 1": ("digits", "text"), "rolling BPTT, equal memory": ("text", "heart")}
    return task not in dear.get(name, ())


def make_learner(network, task, name, settings, batch_size=None):
    """Return a learner: every rule trains all parameters, and nothing moves without a label.

    Args:
        network: network to begin with.
        task: task.
        name: name of the rule.
        settings: the window and the chunk that `equal` found.
        batch_size: number of streams.
    """
    way = WAYS[name]
    optimizer = with_labels_only(ft.adamw(RATE, b1=0.0 if way.rmsprop else 0.9))
    options = {"optimizer": optimizer, "loss": task.loss, "batch_size": batch_size}
    if "reach" in settings:
        return Rolling(network, reach=settings["reach"], chunk=task.chunk, **options)
    return ft.Learner(network, rule=way.rule, warn=False, train_encoder=True, **options)


def with_labels_only(optimizer):
    """Return the optimiser that stands still where the gradient is zero, as without labels."""

    def update(grads, state, params=None):
        asked = jnp.array([jnp.any(leaf) for leaf in jax.tree.leaves(grads)]).any()
        updates, after = optimizer.update(grads, state, params)
        updates = jax.tree.map(lambda leaf: jnp.where(asked, leaf, 0).astype(leaf.dtype), updates)
        return updates, optax.tree.where(asked, after, state)

    return optax.GradientTransformation(optimizer.init, update)


class Costs:
    """Memory and operations by rule on one task, and windows or chunks that equal the reference."""

    def __init__(self, task):
        self.task, self.network = task, task.network(jax.random.key(0))
        for name in ("memory", "operations", "settings"):
            setattr(self, name, cache(getattr(self, name)))

    def of(self, name):
        """Return the costs of a rule, for records."""
        settings = self.settings(name)
        memory, operations = self.memory(name, *settings), self.operations(name, *settings)
        costs = {"memory_kib": round(memory, 1), "operations": round(operations, 1)}
        return costs | dict(settings)

    def settings(self, name):
        """Return the window or the chunk of a rule, as pairs; nothing if it needs none."""
        way, task = WAYS[name], self.task
        kind, equal = ("chunk", way.chunk) if way.chunk else ("reach", way.window)
        if not equal:
            return ()
        cost = self.memory if equal == "memory" else self.operations
        # Below some length, what a chunk needs hides in the room that the gradient needs anyway.
        longest = 4 * task.chunk if kind == "reach" else task.length
        short, long = longest // 2, longest
        at_short, at_long = (cost(name, (kind, steps)) for steps in (short, long))
        # Both grow in proportion to the window.
        steps = int(short + (cost(REFERENCE) - at_short) / (at_long - at_short) * (long - short))
        if kind == "chunk":
            chunks = range(task.chunk, min(steps, task.length) + 1)
            return ((kind, max(chunk for chunk in chunks if not task.length % chunk)),)
        # Less than a chunk would leave labels out, and a sequence has nothing before its first
        # step.
        return ((kind, max(task.chunk, steps if task.joined else min(steps, task.length))),)

    def memory(self, name, *settings):
        """Return KiB of one stream: the carry, and the needs of a compiled call."""
        settings = dict(settings)
        learner = make_learner(self.network, self.task, name, settings)
        state = learner.init()
        chunk = settings.get("chunk", self.task.chunk)
        xs, ys, mask = (jnp.asarray(leaf[0, :chunk]) for leaf in self.task.batch(0))
        starts = {"reset": jnp.zeros(chunk, bool)} if "reach" in settings else {}

        def step(state, xs, ys, mask, starts):
            return learner.step(state, xs, ys, mask=mask, **starts)

        program = jax.jit(step, donate_argnums=0).lower(state, xs, ys, mask, starts).compile()
        rolling = "reach" in settings
        carried = (state.learner.carry, *state[1:]) if rolling else state.carry
        held = sum(leaf.nbytes for leaf in jax.tree.leaves(carried))
        return (held + program.memory_analysis().temp_size_in_bytes) / 2**10

    def operations(self, name, *settings):
        """Return the operations of a step: outputs, gradient and carry, without the optimiser."""
        settings, network, chunk = dict(settings), self.network, self.task.chunk
        if "reach" not in settings:
            return ft.operation_count(network, WAYS[name].rule, settings.get("chunk", chunk))
        window = jnp.zeros((settings["reach"], network.input_size))
        ys = jnp.zeros((chunk, network.output_size))
        step = partial(window_gradient, chunk=chunk, loss=ft.losses.squared_error)
        return operations(step, network, ft.init_carry(network, ft.BPTT), window, ys) / chunk
