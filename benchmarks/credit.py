"""Credit in depth at a reduced scale: loss on the copy task, alignment at the start, carry and time, for each depth.

    python benchmarks/credit.py --output benchmarks/credit.json
    python benchmarks/credit.py --output benchmarks/credit_long.json --steps 5000 --cosine

Whole sequences, one update for each batch (for two where errors are predicted), fresh patterns; four LRU layers of
N 32, H 32, pattern of 12 steps, 4 bits, kept over 4. This is far from the paper's setting (N 64, H 128, pattern of 20
steps): it orders rules and no more.
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

import foretrace as ft
from foretrace.tasks.copy import Copy

TASK = Copy(pattern_length=12, padding=4, bits=4)
BATCH, RATE, AVERAGED, DEPTH = 20, 3e-3, 50, 4
RULES = [*(ft.ONLINE.with_depth(d) for d in (0, 1, 2, DEPTH)), ft.ONLINE.with_predicted_errors(), ft.BPTT]


def make_network(seed, r_min, size=32):
    cell = ft.LRU.factory(state_size=size, r_min=r_min)
    key = jax.random.key(seed)
    return ft.Network(TASK.input_size, TASK.output_size, model_size=size, depth=DEPTH, cell=cell, key=key)


def train(rule, seeds, r_min, steps, cosine):
    """Return for each seed the loss along the way, in means of some steps, and seconds for each step."""
    updates = steps // 2 if rule.predicted else steps
    rate = optax.cosine_decay_schedule(RATE, updates) if cosine else RATE
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rate))
    settings = {"rule": rule, "optimizer": optimizer, "loss": TASK.loss, "whole_sequences": True, "warn": False}
    learner = ft.Learner(make_network(0, r_min), **settings)

    @jax.jit
    def some(state, first, seed):
        def one(state, step):
            batch = TASK.batch(seed=seed, step=step, size=BATCH)
            state, info = learner.step(state, batch.xs, batch.ys, mask=batch.mask)
            return state, info.loss

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


def stream(rule, chunk=8, repeats=3):
    """Return the fastest time for each step of one stream in chunks, with its sensitivities."""
    network = make_network(0, 0.0)
    carry = ft.init_carry(network, rule)
    xs, ys = jnp.ones((chunk, TASK.input_size)), jnp.zeros((chunk, TASK.bits), int)
    took = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        *_, carry = jax.block_until_ready(ft.gradient(network, carry, xs, ys, rule=rule, loss=TASK.loss))
        took.append((time.perf_counter() - began) / chunk)
    return min(took[1:])


def alignment(rule, seed, r_min):
    """Return the cosine with backpropagation through time at the start; a predictor is fitted to other sequences."""
    network = make_network(seed, r_min)
    batch, other = (TASK.batch(seed=seed, step=step, size=BATCH) for step in range(2))
    options = {"rule": rule, "loss": TASK.loss}
    if rule.predicted:
        options["predictor"] = ft.fit_predictor(network, other.xs, other.ys, mask=other.mask, passes=1, **options)
    return ft.alignment(network, batch.xs, batch.ys, mask=batch.mask, **options).total


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--r-min", type=float, nargs="+", default=[0.0])
    parser.add_argument("--cosine", action="store_true", help="let the rate decay to zero")
    names = [str(rule) for rule in RULES]
    parser.add_argument("--rules", nargs="+", choices=names, default=names)
    asked = parser.parse_args()
    paper = ft.Network(8, 14, model_size=128, depth=4, cell=ft.LRU.factory(state_size=64), key=jax.random.key(0))
    rows = []
    for r_min in asked.r_min:
        for rule in [rule for rule in RULES if str(rule) in asked.rules]:
            curves, seconds = train(rule, asked.seeds, r_min, asked.steps, asked.cosine)
            row = {"rule": str(rule), "r_min": r_min, "losses": [curve[-1] for curve in curves]}
            row["cosine_at_start"] = [alignment(rule, seed, r_min) for seed in range(asked.seeds)]
            row["seconds_per_update"] = seconds
            row["seconds_per_streamed_step"] = stream(rule)
            row["carry"] = ft.carry_size(make_network(0, r_min), rule)
            row["carry_paper"] = ft.carry_size(paper, rule)
            print(row, flush=True)
            rows.append(row | {"curves": curves})
            setting = {"scale": "reduced", "steps": asked.steps, "batch": BATCH, "rate": RATE, "averaged": AVERAGED}
            setting["decay"] = "cosine" if asked.cosine else "none"
            setting |= {"task": repr(TASK), "network": "4 x LRU, N 32, H 32, float32", "load": os.getloadavg()[0]}
            setting |= {"jax": jax.__version__, "device": jax.devices()[0].device_kind}
            asked.output.write_text(json.dumps({"setting": setting, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
