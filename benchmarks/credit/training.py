"""Credit in depth at a reduced scale: copy loss, alignment, carry, operations, time.

    python -m benchmarks.credit.training --steps 1000
    python -m benchmarks.credit.training --cosine --seeds 3

Fresh patterns, one update for each batch; four LRU layers of N 32, H 32, a pattern of 12 steps, 4
bits, kept over 4, so 29 steps in all. This is far from the paper's setting (N 64, H 128, pattern of
20 steps): it orders methods and no more. Rules that are exact on whole sequences are run so; the
others in chunks of 8. A window is gone through again for every chunk. Finished cells stay in
records/credit.jsonl.
"""

import time
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

import foretrace as ft
from benchmarks import ledger
from benchmarks.networks import lru_network, timed
from benchmarks.rolling import window_gradient
from foretrace._engine.operations import operations
from foretrace.experiment import Copy

TASK = Copy(pattern_length=12, padding=4, bits=4)
BATCH, RATE, AVERAGED, DEPTH, CHUNK = 20, 3e-3, 50, 4, 8


class Method(NamedTuple):
    """A rule, in chunks or on whole sequences, or through a window."""

    rule: ft.LearningRule
    chunk: int | None = None
    reach: int | None = None


def with_depth(*options):
    """Return the online rule with each text of options."""
    return [ft.rule(f"online({text})") for text in options]


GROUPS = [f"depth={d}, groups={g}" for g in (1, 2) for d in (1, 2, DEPTH)]
WHOLE = [*(ft.ONLINE.with_depth(d) for d in range(DEPTH + 1)), *with_depth(*GROUPS), ft.BPTT]
SAMPLED = with_depth(
    "depth=1, modules=8", "depth=1, modules=4", *(f"{text}, modules=8" for text in GROUPS)
)
IN_CHUNKS = [*SAMPLED, ft.HYBRID, ft.HYBRID.with_depth(1)]
METHODS = (
    {str(rule): Method(rule) for rule in WHOLE}
    | {str(rule): Method(rule, CHUNK) for rule in IN_CHUNKS}
    | {f"BPTT, chunks of {CHUNK}": Method(ft.BPTT, CHUNK)}
    | {f"BPTT, window of {reach}": Method(ft.BPTT, CHUNK, reach) for reach in (16, 24)}
)


def make_network(seed, r_min):
    key = jax.random.key(seed)
    return lru_network(TASK.input_size, TASK.output_size, 32, DEPTH, key=key, r_min=r_min)


def train(method, cell):
    """Return for each seed the loss along the way, in means, and seconds for each step."""
    found, steps = [], cell["steps"]
    rate = optax.cosine_decay_schedule(RATE, steps) if cell["decay"] == "cosine" else RATE
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))
    options = {"accumulate": bool(method.chunk), "whole_sequences": not method.chunk}
    options |= {"optimizer": optimizer, "loss": TASK.loss, "batch_size": BATCH}
    start = make_network(0, cell["r_min"])
    learner = ft.Learner(start, rule=method.rule, warn=False, **options)

    def one(seed, state, step):
        batch = TASK.batch(seed, step, BATCH)
        if method.reach:
            loss, grads = windows(state.network, batch, method)
            updates, moments = optimizer.update(grads, state.opt_state, state.network)
            network = optax.apply_updates(state.network, updates)
            return state._replace(network=network, opt_state=moments), loss
        length = batch.xs.shape[1]
        total, size = 0.0, method.chunk or length
        for at in range(0, length, size):
            xs, ys, mask = (leaf[:, at : at + size] for leaf in (batch.xs, batch.ys, batch.mask))
            end = {"end": at + size >= length} if method.chunk else {}
            state, info = learner.step(state, xs, ys, mask=mask, **end)
            total = total + info.loss
        return state, total

    @jax.jit
    def some(state, at, seed):
        return lax.scan(partial(one, seed), state, at + jnp.arange(AVERAGED))

    seconds = 0.0
    for seed in range(cell["seeds"]):
        state, curve = learner.init()._replace(network=make_network(seed, cell["r_min"])), []
        some.lower(state, jnp.int32(0), jnp.int32(0)).compile()
        for at in range(0, steps, AVERAGED):
            began = time.perf_counter()
            state, losses = jax.block_until_ready(some(state, jnp.int32(at), jnp.int32(seed)))
            seconds += time.perf_counter() - began
            curve.append(float(f"{np.mean(losses):.4g}"))
        found.append(curve)
    return found, seconds / steps / cell["seeds"]


def windows(network, batch, method):
    """Return loss and gradient of sequences, each chunk differentiated through `reach` steps."""

    def one(xs, ys, mask):
        carry, first, value, grads = ft.init_carry(network, ft.BPTT), 0, 0.0, None
        for start in range(0, len(xs), CHUNK):
            new, window = slice(start, start + CHUNK), xs[first : start + CHUNK]
            given = {"mask": mask[new], "chunk": CHUNK, "loss": TASK.loss}
            loss, part, moved = window_gradient(network, carry, window, ys[new], **given)
            value += loss
            grads = part if grads is None else jax.tree.map(jnp.add, grads, part)
            if len(window) >= method.reach:
                carry, first = moved, first + CHUNK
        return value, grads

    return jax.tree.map(lambda leaf: leaf.mean(0), jax.vmap(one)(batch.xs, batch.ys, batch.mask))


@cache
def stream_program(name):
    """Return a stream's program for every chunk: its function, carry, and compiled form."""
    method, network = METHODS[name], make_network(0, 0.0)
    xs, ys = jnp.ones((method.reach or CHUNK, TASK.input_size)), jnp.zeros((CHUNK, TASK.bits), int)
    carry = ft.init_carry(network, method.rule)

    def learn(carry):
        if method.reach:
            return window_gradient(network, carry, xs, ys, chunk=CHUNK, loss=TASK.loss)
        return ft.gradient(network, carry, xs, ys, rule=method.rule, loss=TASK.loss)

    return learn, carry, jax.jit(learn).lower(carry).compile()


def stream_time(name, rounds=9):
    """Return the median time for each step of one stream in chunks."""
    _, carry, program = stream_program(name)
    took = timed({name: lambda: program(carry)}, rounds)[name]
    return float(np.median(took)) / CHUNK


def costs(name):
    """Return costs of a stream's step in chunks: carry, operations, temporary memory.

    A window carries its inputs.
    """
    method, network = METHODS[name], make_network(0, 0.0)
    learn, carry, program = stream_program(name)
    window = (method.reach or 0) * TASK.input_size
    if window:
        count = operations(learn, carry) / CHUNK
    else:
        count = ft.operation_count(network, method.rule, CHUNK)
    temporary = program.memory_analysis().temp_size_in_bytes
    carried = ft.carry_size(network, method.rule) + window
    return {"carry": carried, "operations_per_step": round(count), "temporary_bytes": temporary}


def alignment(method, seed, r_min):
    """Return the cosine with backpropagation through time at the start; None for a window."""
    if method.reach:
        return None
    batch = TASK.batch(seed=seed, step=0, size=BATCH)
    options = {"rule": method.rule, "loss": TASK.loss, "mask": batch.mask, "chunk": method.chunk}
    return ft.alignment(make_network(seed, r_min), batch.xs, batch.ys, **options).total


def measure(cell):
    """Return losses and costs of a method."""
    method, name = METHODS[cell["rule"]], cell["rule"]
    curves, seconds = train(method, cell)
    cosines = [alignment(method, seed, cell["r_min"]) for seed in range(cell["seeds"])]
    return {
        "losses": [curve[-1] for curve in curves],
        "cosine_at_start": cosines,
        **costs(name),
        "seconds_per_update": seconds,
        "seconds_per_streamed_step": stream_time(name),
        "curves": curves,
    }


def cells(steps=5000, seeds=2, r_min=(0.0,), cosine=False, rules=METHODS):
    """Return the cells.

    Args:
        seeds: number of seeds.
        cosine: let the rate decay to zero.
    """
    decay = "cosine" if cosine else "none"
    return ledger.grid(r_min=r_min, rule=rules, steps=steps, decay=decay, seeds=seeds)


if __name__ == "__main__":
    ledger.run(__doc__, "credit", cells, measure)
