"""Credit in depth at a reduced scale: loss on the copy task, alignment at the start, carry, operations and time.

    python benchmarks/credit.py --output benchmarks/credit.json
    python benchmarks/credit.py --output benchmarks/credit_long.json --steps 5000 --cosine --seeds 3
    python benchmarks/credit.py --output benchmarks/credit_long.json --time --plot docs/credit/tradeoff.png

Fresh patterns, one update for each batch; four LRU layers of N 32, H 32, a pattern of 12 steps, 4 bits, kept over 4, so
29 steps in all. This is far from the paper's setting (N 64, H 128, pattern of 20 steps): it orders methods and no more.
Rules that are exact on whole sequences are run so; what a rule does inside a chunk alone is run in chunks of 8. Beside
the rules: windows, and layer after layer (`credit_baselines.py`). Rows of methods that are not asked for stay as they
are.
"""

import argparse
import json
import os
import time
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import credit_baselines as baselines
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import foretrace as ft
from foretrace import experiment
from foretrace._engine.operations import operations
from foretrace.experiment import _program
from foretrace.tasks.copy import Copy

TASK = Copy(pattern_length=12, padding=4, bits=4)
BATCH, RATE, AVERAGED, DEPTH, CHUNK = 20, 3e-3, 50, 4, 8


class Method(NamedTuple):
    """A rule, in chunks or on whole sequences; through a window, or layer after layer."""

    rule: ft.LearningRule
    chunk: int | None = None
    reach: int | None = None
    stages: bool = False


DEEP, SHALLOW = ft.ONLINE.with_depth(1), ft.HYBRID.with_depth(1)
GROUPS = [ft.ONLINE.with_depth(d).with_groups(g) for g in (1, 2) for d in (1, 2, DEPTH)]
WHOLE = [*(ft.ONLINE.with_depth(d) for d in range(DEPTH + 1)), *GROUPS, ft.BPTT]
DRAWN = [
    *(DEEP.with_modules(modules) for modules in (8, 4)),
    *(rule.with_modules(8) for rule in GROUPS),
]
SKETCHED = [ft.UORO, ft.UORO.with_sketches(16)]
METHODS = (
    {str(rule): Method(rule) for rule in WHOLE}
    | {str(rule): Method(rule, CHUNK) for rule in (*DRAWN, ft.HYBRID, SHALLOW, *SKETCHED)}
    | {f"BPTT, chunks of {CHUNK}": Method(ft.BPTT, CHUNK)}
    | {f"BPTT, window of {reach}": Method(ft.BPTT, CHUNK, reach) for reach in (16, 24)}
    | {"SNAP1, layer after layer": Method(ft.ONLINE, stages=True)}
)


def make_network(seed, r_min, size=32, depth=DEPTH):
    cell = ft.LRU.factory(state_size=size, r_min=r_min)
    key = jax.random.key(seed)
    return ft.Network(TASK.input_size, TASK.output_size, model_size=size, depth=depth, cell=cell, key=key)


def make_optimizer(updates, cosine):
    rate = optax.cosine_decay_schedule(RATE, updates) if cosine else RATE
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))


def train(method, seeds, r_min, steps, cosine):
    """Return for each seed the loss along the way, in means of some steps, and seconds for each step."""
    found, began = [], time.perf_counter()
    depths = range(1, DEPTH + 1) if method.stages else [DEPTH]
    parts = [(depth, *stage(method, depth, r_min, steps // len(depths), cosine)) for depth in depths]
    compiled = time.perf_counter() - began
    for seed in range(seeds):
        network, curve = None, []
        for number, (depth, first, program) in enumerate(parts):
            fresh = make_network(seed, r_min, depth=depth)
            state = first(fresh if network is None else baselines.grown(network, fresh))
            share = steps // len(parts)
            for at in range(0, share, AVERAGED):
                state, losses = jax.block_until_ready(program(state, jnp.int32(number * share + at), jnp.int32(seed)))
                curve.append(float(f"{np.mean(losses):.4g}"))
            network = state[0]
        found.append(curve)
    return found, (time.perf_counter() - began - compiled) / steps / seeds


def stage(method, depth, r_min, steps, cosine):
    """Return how a stage's state begins, its network in front, and a compiled program of some of its steps."""
    optimizer = make_optimizer(steps, cosine)
    if method.stages:
        optimizer = optax.chain(baselines.newest_only(make_network(0, r_min, depth=depth)), optimizer)
    if method.reach:
        gradient = partial(baselines.window_gradient, reach=method.reach, chunk=method.chunk, loss=TASK.loss)

        def one(seed, state, step):
            network, momentum = state
            loss, grads = gradient(network, TASK.batch(seed, step, BATCH))
            updates, momentum = optimizer.update(grads, momentum, network)
            return (optax.apply_updates(network, updates), momentum), loss

        def first(network):
            return network, optimizer.init(network)
    else:
        options = {"rule": method.rule, "optimizer": optimizer, "loss": TASK.loss, "warn": False, "batch_size": BATCH}
        options |= {"accumulate": bool(method.chunk), "whole_sequences": not method.chunk}
        learner = ft.Learner(make_network(0, r_min, depth=depth), **options)
        config = experiment.Config(task=TASK, batch_size=BATCH, chunk=method.chunk)

        def one(seed, state, step):
            state, (loss, *_) = _program.learn(config, TASK, learner, state, step, seed)
            return state, loss

        def first(network):
            return learner.init()._replace(network=network)

    @jax.jit
    def some(state, at, seed):
        return lax.scan(partial(one, seed), state, at + jnp.arange(AVERAGED))

    example = jax.eval_shape(lambda: first(make_network(0, r_min, depth=depth)))
    return first, some.lower(example, jnp.int32(0), jnp.int32(0)).compile()


@cache
def stream_program(method):
    """Return the compiled program that a stream runs for every chunk, and the carry that it starts from."""
    network, length = make_network(0, 0.0), method.reach or CHUNK
    xs, ys = jnp.ones((length, TASK.input_size)), jnp.zeros((length, TASK.bits), int)
    carry = ft.init_carry(network, method.rule)

    def learn(carry):
        if method.reach:
            return baselines.window_step(network, carry, xs, ys, chunk=CHUNK, loss=TASK.loss)
        return ft.gradient(network, carry, xs, ys, rule=method.rule, loss=TASK.loss)

    return jax.jit(learn).lower(carry).compile(), carry


def stream_times(names, rounds=9):
    """Return for each method the median time for each step of one stream in chunks, all methods in turn."""
    programs = {name: stream_program(METHODS[name]) for name in names}
    took = {name: [] for name in programs}
    for _ in range(rounds + 1):
        for name, (program, carry) in programs.items():
            began = time.perf_counter()
            jax.block_until_ready(program(carry))
            took[name].append((time.perf_counter() - began) / CHUNK)
    return {name: float(np.median(times[1:])) for name, times in took.items()}


def costs(method):
    """Return what a step of a stream costs in chunks: numbers carried, operations counted, bytes of temporary memory.

    A window carries its inputs; of layers that come one after another only the newest carries sensitivities. (Their
    operations are those of the whole network under the rule, since nothing is spared that is not used.)
    """
    network, chunk = make_network(0, 0.0), CHUNK
    carried = ft.carry_size(network, method.rule)
    if method.reach:
        carried += method.reach * TASK.input_size
        xs, ys = jnp.ones((method.reach, TASK.input_size)), jnp.zeros((method.reach, TASK.bits), int)
        step = partial(baselines.window_step, chunk=chunk, loss=TASK.loss)
        count = operations(step, network, ft.init_carry(network, ft.BPTT), xs, ys) / chunk
    else:
        count = ft.operation_count(network, method.rule, chunk)
    if method.stages:
        states = ft.carry_size(network, ft.BPTT)
        carried = states + (carried - states) // DEPTH
    temporary = stream_program(method)[0].memory_analysis().temp_size_in_bytes
    return {"carry": carried, "operations_per_step": round(count), "temporary_bytes": temporary}


def alignment(method, seed, r_min):
    """Return the cosine with backpropagation through time at the start."""
    if method.reach or method.stages:
        return None
    network = make_network(seed, r_min)
    batch = TASK.batch(seed=seed, step=0, size=BATCH)
    options = {"rule": method.rule, "loss": TASK.loss}
    return ft.alignment(network, batch.xs, batch.ys, mask=batch.mask, chunk=method.chunk, **options).total


def plot(rows, path):
    """Draw the loss at the end over what each step of a stream costs, one point for a method."""
    costs = {
        "carry": "numbers carried for a stream",
        "operations_per_step": f"operations for a step, chunks of {CHUNK}",
        "seconds_per_streamed_step": f"seconds for a step, chunks of {CHUNK}",
    }
    page = Figure(figsize=(15, 5), layout="constrained")
    FigureCanvasAgg(page)
    panels = page.subplots(1, len(costs), sharey=True)
    for number, row in enumerate(rows):
        losses = np.array(row["losses"])
        middle = np.exp(np.log(losses).mean())
        spread = [[middle - losses.min()], [losses.max() - middle]]
        style = {"color": f"C{number % 10}", "marker": "os^vDP"[number // 10 % 6], "capsize": 3, "linestyle": "none"}
        whole = row["rule"] == "BPTT"
        for axes, key in zip(panels, costs, strict=True):
            if not whole:
                axes.errorbar(row[key], middle, spread, label=row["rule"], **style)
            else:
                axes.axhline(middle, color="0.5", linestyle=":", label="BPTT, whole sequences")
    for axes, label in zip(panels, costs.values(), strict=True):
        axes.set(xscale="log", yscale="log", xlabel=label)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("final training loss, geometric mean and range of the seeds")
    page.legend(*panels[0].get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    page.savefig(path, dpi=80)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--r-min", type=float, nargs="+", default=[0.0])
    parser.add_argument("--cosine", action="store_true", help="let the rate decay to zero")
    parser.add_argument("--rules", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--time", action="store_true", help="train nothing: time a stream's step for all rows, in turn")
    parser.add_argument("--plot", type=Path, help="draw the rows into this file")
    asked = parser.parse_args()
    if asked.time and not asked.output.exists():
        parser.error(f"--time needs the rows of {asked.output}, which is not there")
    before = json.loads(asked.output.read_text()) if asked.output.exists() else {"rows": []}
    rows = before["rows"]
    setting = {"scale": "reduced", "steps": asked.steps, "batch": BATCH, "rate": RATE, "averaged": AVERAGED}
    setting["decay"] = "cosine" if asked.cosine else "none"
    setting |= {"task": repr(TASK), "network": "4 x LRU, N 32, H 32, float32", "load": os.getloadavg()[0]}
    setting |= {"jax": jax.__version__, "device": jax.devices()[0].device_kind}
    for name in ("steps", "decay", "batch", "rate"):
        # The oldest record does not say its decay.
        if not asked.time and rows and (old := before["setting"].get(name, "none")) != setting[name]:
            parser.error(f"{asked.output} was made with {name} {old}; choose another --output")
    if asked.time:
        setting = before["setting"] | {"load_when_timed": os.getloadavg()[0]}
        found = stream_times([row["rule"] for row in rows])
        rows = [row | costs(METHODS[row["rule"]]) | {"seconds_per_streamed_step": found[row["rule"]]} for row in rows]
        write(asked.output, setting, rows)
    else:
        paper = ft.Network(8, 14, model_size=128, depth=4, cell=ft.LRU.factory(state_size=64), key=jax.random.key(0))
        for r_min, name in ((r_min, name) for r_min in asked.r_min for name in asked.rules):
            method = METHODS[name]
            curves, seconds = train(method, asked.seeds, r_min, asked.steps, asked.cosine)
            row = {"rule": name, "chunk": method.chunk, "r_min": r_min, "losses": [curve[-1] for curve in curves]}
            row["cosine_at_start"] = [alignment(method, seed, r_min) for seed in range(asked.seeds)]
            row |= costs(method)
            row["carry_paper"] = None if method.reach or method.stages else ft.carry_size(paper, method.rule)
            row["seconds_per_update"] = seconds
            row["seconds_per_streamed_step"] = stream_times([name])[name]
            print(row, flush=True)
            rows = [old for old in rows if (old["rule"], old["r_min"]) != (name, r_min)] + [row | {"curves": curves}]
            rows.sort(key=lambda row: (row["r_min"], list(METHODS).index(row["rule"])))
            write(asked.output, setting, rows)
    if asked.plot:
        plot([row for row in rows if row["r_min"] == asked.r_min[0]], asked.plot)


def write(path, setting, rows):
    """Write settings and rows."""
    path.write_text(json.dumps({"setting": setting, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
