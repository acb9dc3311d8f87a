"""Credit in depth at a reduced scale: copy loss, alignment, carry, operations, time.

    python -m benchmarks.credit.training --steps 1000
    python -m benchmarks.credit.training --cosine --seeds 3
    python -m benchmarks.credit.training --plot results/credit/tradeoff.png

Fresh patterns, one update for each batch; four LRU layers of N 32, H 32, a pattern of 12 steps, 4
bits, kept over 4, so 29 steps in all. This is far from the paper's setting (N 64, H 128, pattern of
20 steps): it orders methods and no more. Rules that are exact on whole sequences are run so; the
others in chunks of 8. A window is gone through again for every chunk. Finished cells stay in
records/credit.jsonl.
"""

import time
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

import foretrace as ft
from benchmarks import ledger
from benchmarks.rolling import window_gradient
from foretrace._engine.operations import operations
from foretrace.experiment import Copy

FILE = ledger.RECORDS / "credit.jsonl"
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
    cell = ft.LRU.factory(state_size=32, r_min=r_min)
    key = jax.random.key(seed)
    return ft.Network(
        TASK.input_size, TASK.output_size, model_size=32, depth=DEPTH, cell=cell, key=key
    )


def train(method, cell):
    """Return for each seed the loss along the way, in means, and seconds for each step."""
    found, steps = [], cell["steps"]
    rate = optax.cosine_decay_schedule(RATE, steps) if cell["decay"] == "cosine" else RATE
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))
    whole = {
        "batch_size": BATCH,
        "accumulate": bool(method.chunk),
        "whole_sequences": not method.chunk,
    }
    learner = ft.Learner(
        make_network(0, cell["r_min"]),
        rule=method.rule,
        optimizer=optimizer,
        loss=TASK.loss,
        warn=False,
        **whole,
    )

    def one(seed, state, step):
        batch = TASK.batch(seed, step, BATCH)
        if method.reach:
            loss, grads = windows(state.network, batch, method)
            updates, moments = optimizer.update(grads, state.opt_state, state.network)
            return state._replace(
                network=optax.apply_updates(state.network, updates), opt_state=moments
            ), loss
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
            value, grads = (
                value + loss,
                part if grads is None else jax.tree.map(jnp.add, grads, part),
            )
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
    took = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        jax.block_until_ready(program(carry))
        took.append((time.perf_counter() - began) / CHUNK)
    return float(np.median(took[1:]))


def costs(name):
    """Return costs of a stream's step in chunks: carry, operations, temporary memory.

    A window carries its inputs.
    """
    method, network = METHODS[name], make_network(0, 0.0)
    learn, carry, program = stream_program(name)
    window = (method.reach or 0) * TASK.input_size
    count = (
        operations(learn, carry) / CHUNK
        if window
        else ft.operation_count(network, method.rule, CHUNK)
    )
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


def plot(records, path):
    """Draw the loss at the end over what each step of a stream costs, one point for a method."""
    from matplotlib.figure import Figure

    from benchmarks.streams.figures import save

    costs = {
        "carry": "numbers carried for a stream",
        "operations_per_step": f"operations for a step, chunks of {CHUNK}",
        "seconds_per_streamed_step": f"seconds for a step, chunks of {CHUNK}",
    }
    page = Figure(figsize=(15, 5), layout="constrained")
    panels = page.subplots(1, len(costs), sharey=True)
    for number, record in enumerate(records):
        name, losses = record["cell"]["rule"], np.array(record["found"]["losses"])
        middle = np.exp(np.log(losses).mean())
        spread = [[middle - losses.min()], [losses.max() - middle]]
        style = {
            "color": f"C{number % 10}",
            "marker": "os^vDP"[number // 10 % 6],
            "capsize": 3,
            "linestyle": "none",
        }
        for axes, key in zip(panels, costs, strict=True):
            if name == "BPTT":
                axes.axhline(middle, color="0.5", linestyle=":", label="BPTT, whole sequences")
            else:
                axes.errorbar(record["found"][key], middle, spread, label=name, **style)
    for axes, label in zip(panels, costs.values(), strict=True):
        axes.set(xscale="log", yscale="log", xlabel=label)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("final training loss, geometric mean and range of the seeds")
    page.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    save(page, path)


def main():
    parser = ledger.parser(__doc__)
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--r-min", type=float, nargs="+", default=[0.0])
    parser.add_argument("--cosine", action="store_true", help="let the rate decay to zero")
    parser.add_argument("--rules", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--plot", type=Path, help="draw the longest runs on record into this file")
    asked = parser.parse_args()
    if asked.plot:
        records = ledger.read(FILE)
        most = max(record["cell"]["steps"] for record in records)
        return plot([r for r in records if r["cell"]["steps"] == most], asked.plot)
    setting = {
        "steps": asked.steps,
        "decay": "cosine" if asked.cosine else "none",
        "seeds": asked.seeds,
    }
    cells = [
        {"rule": name, "r_min": r_min, **setting} for r_min in asked.r_min for name in asked.rules
    ]
    return ledger.each(FILE, cells, measure)


if __name__ == "__main__":
    main()
