"""Credit in depth at a reduced scale: loss on the copy task, alignment at the start, carry and time, for each rule.

    python benchmarks/credit.py --output benchmarks/credit.json
    python benchmarks/credit.py --output benchmarks/credit_long.json --steps 5000 --cosine --seeds 3
    python benchmarks/credit.py --output benchmarks/credit_long.json --time --plot docs/credit/tradeoff.png

Fresh patterns, one update for each batch (for two where errors are predicted); four LRU layers of N 32, H 32, a pattern
of 12 steps, 4 bits, kept over 4, so 29 steps in all. This is far from the paper's setting (N 64, H 128, pattern of 20
steps): it orders rules and no more. Rules that are exact on whole sequences are run so; what a rule does inside a chunk
alone is run in chunks of 8. Rows of rules that are not asked for stay as they are.
"""

import argparse
import json
import os
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import foretrace as ft
from foretrace import _program, experiment
from foretrace.tasks.copy import Copy

TASK = Copy(pattern_length=12, padding=4, bits=4)
BATCH, RATE, AVERAGED, DEPTH, CHUNK = 20, 3e-3, 50, 4, 8
WHOLE = [*(ft.ONLINE.with_depth(d) for d in range(DEPTH + 1)), ft.ONLINE.with_predicted_errors(), ft.BPTT]
FEW = [ft.ONLINE.with_depth(1).with_columns(columns) for columns in (16, 8, 4)]
IN_CHUNKS = [*FEW, ft.HYBRID, ft.UORO, ft.UORO.with_sketches(16)]
RULES = {str(rule): rule for rule in (*WHOLE, *IN_CHUNKS)}


def make_network(seed, r_min, size=32):
    cell = ft.LRU.factory(state_size=size, r_min=r_min)
    key = jax.random.key(seed)
    return ft.Network(TASK.input_size, TASK.output_size, model_size=size, depth=DEPTH, cell=cell, key=key)


def train(rule, chunk, seeds, r_min, steps, cosine):
    """Return for each seed the loss along the way, in means of some steps, and seconds for each step."""
    updates = steps // 2 if rule.predicted else steps
    rate = optax.cosine_decay_schedule(RATE, updates) if cosine else RATE
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))
    options = {"rule": rule, "optimizer": optimizer, "loss": TASK.loss, "warn": False, "batch_size": BATCH}
    learner = ft.Learner(make_network(0, r_min), accumulate=bool(chunk), whole_sequences=not chunk, **options)
    config = experiment.Config(task=TASK, batch_size=BATCH, chunk=chunk)

    @jax.jit
    def some(state, first, seed):
        def one(state, step):
            state, (loss, *_) = _program.learn(config, TASK, learner, state, step, seed)
            return state, loss

        return lax.scan(one, state, first + jnp.arange(AVERAGED))

    found, took = [], []
    program = some.lower(learner.init(), jnp.int32(0), jnp.int32(0)).compile()
    for seed in range(seeds):
        state = learner.init()._replace(network=make_network(seed, r_min))
        began, curve = time.perf_counter(), []
        for first in range(0, steps, AVERAGED):
            state, losses = jax.block_until_ready(program(state, jnp.int32(first), jnp.int32(seed)))
            curve.append(float(f"{np.mean(losses):.4g}"))
        found.append(curve)
        took.append((time.perf_counter() - began) / steps)
    return found, min(took)


def stream_times(names, chunk=CHUNK, rounds=9):
    """Return for each rule the median time for each step of one stream in chunks, all rules in turn."""
    xs, ys = jnp.ones((chunk, TASK.input_size)), jnp.zeros((chunk, TASK.bits), int)
    network, programs = make_network(0, 0.0), {}
    for name in names:
        rule = RULES[name]

        def learn(carry, rule=rule):
            return ft.gradient(network, carry, xs, ys, rule=rule, loss=TASK.loss)

        carry = ft.init_carry(network, rule)
        programs[name] = jax.jit(learn).lower(carry).compile(), carry
    took = {name: [] for name in programs}
    for _ in range(rounds + 1):
        for name, (program, carry) in programs.items():
            began = time.perf_counter()
            jax.block_until_ready(program(carry))
            took[name].append((time.perf_counter() - began) / chunk)
    return {name: float(np.median(times[1:])) for name, times in took.items()}


def alignment(rule, chunk, seed, r_min):
    """Return the cosine with backpropagation through time at the start; a predictor is fitted to other sequences."""
    network = make_network(seed, r_min)
    batch, other = (TASK.batch(seed=seed, step=step, size=BATCH) for step in range(2))
    options = {"rule": rule, "loss": TASK.loss}
    if rule.predicted:
        options["predictor"] = ft.fit_predictor(network, other.xs, other.ys, mask=other.mask, passes=1, **options)
    return ft.alignment(network, batch.xs, batch.ys, mask=batch.mask, chunk=chunk, **options).total


def plot(rows, path):
    """Draw the loss at the end over what a stream carries and over its time for each step, one point for a rule."""
    page = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(page)
    left, right = page.subplots(1, 2, sharey=True)
    for row in rows:
        losses = np.array(row["losses"])
        middle = np.exp(np.log(losses).mean())
        spread = [[middle - losses.min()], [losses.max() - middle]]
        for axes, key in ((left, "carry"), (right, "seconds_per_streamed_step")):
            exact = row["rule"] == "BPTT"
            if exact and axes is right:
                continue  # a step of a stream is not what it is for
            axes.errorbar(row[key], middle, spread, marker="*" if exact else "o", capsize=3, color=_color(row["rule"]))
            axes.annotate(row["rule"], (row[key], middle), xytext=(5, 5), textcoords="offset points", fontsize=7)
    left.set(xscale="log", yscale="log", xlabel="numbers carried for a stream", ylabel="final training loss")
    right.set(xscale="log", xlabel=f"seconds for each step of one stream, in chunks of {CHUNK}")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.margins(x=0.2)
    path.parent.mkdir(parents=True, exist_ok=True)
    page.savefig(path, dpi=80)


def _color(name):
    return f"C{list(RULES).index(name) % 10}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--r-min", type=float, nargs="+", default=[0.0])
    parser.add_argument("--cosine", action="store_true", help="let the rate decay to zero")
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES))
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
        if not asked.time and rows and before["setting"][name] != setting[name]:
            parser.error(f"{asked.output} was made with {name} {before['setting'][name]}; choose another --output")
    if asked.time:
        setting = before["setting"] | {"load_when_timed": os.getloadavg()[0]}
        found = stream_times([row["rule"] for row in rows])
        rows = [row | {"seconds_per_streamed_step": found[row["rule"]]} for row in rows]
        write(asked.output, setting, rows)
    else:
        paper = ft.Network(8, 14, model_size=128, depth=4, cell=ft.LRU.factory(state_size=64), key=jax.random.key(0))
        for r_min, name in ((r_min, name) for r_min in asked.r_min for name in asked.rules):
            rule, chunk = RULES[name], CHUNK if RULES[name] in IN_CHUNKS else None
            curves, seconds = train(rule, chunk, asked.seeds, r_min, asked.steps, asked.cosine)
            row = {"rule": name, "chunk": chunk, "r_min": r_min, "losses": [curve[-1] for curve in curves]}
            row["cosine_at_start"] = [alignment(rule, chunk, seed, r_min) for seed in range(asked.seeds)]
            row["seconds_per_update"] = seconds
            row["seconds_per_streamed_step"] = stream_times([name])[name]
            row["carry"] = ft.carry_size(make_network(0, r_min), rule)
            row["carry_paper"] = ft.carry_size(paper, rule)
            print(row, flush=True)
            rows = [old for old in rows if (old["rule"], old["r_min"]) != (name, r_min)] + [row | {"curves": curves}]
            rows.sort(key=lambda row: (row["r_min"], list(RULES).index(row["rule"])))
            write(asked.output, setting, rows)
    if asked.plot:
        plot(rows, asked.plot)


def write(path, setting, rows):
    """Write settings and rows."""
    path.write_text(json.dumps({"setting": setting, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
