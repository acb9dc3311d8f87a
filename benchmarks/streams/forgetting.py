"""Does a network that learns at every row forget? One easy stream, one change of learner.

    python -m benchmarks.streams.forgetting learners --layers 1 2 --chunks 1 16 --rows 200000
    python -m benchmarks.streams.forgetting commands --rows 1000000

The class is the sign of the input three rows before. All rows are one compiled loop, and seeds run
side by side. Accuracies are progressive, of each fortieth of the rows. `probe` compares the
gradient of the rule with the exact one, both of the last 1,024 rows with the parameters of the end:
cosine, ratio of norms, and norm for a row of the exact one, for what stands in front of the first
recurrent layer (front), for the recurrent layers (cells) and for the rest. `commands` gives the
same rows to `foretrace stream`; a run that was stopped goes on when it is asked for again.
"""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.flatten_util import ravel_pytree

import foretrace as ft
from benchmarks import ledger
from benchmarks.networks import classifier, lru_network
from benchmarks.streams.followed import write
from foretrace._learner.wrappers import holding, in_front_of_recurrences
from foretrace._runs.metrics import read_metrics

WORK = ledger.ROOT / "runs" / "forgetting"
BACK, PARTS, PROBE, WINDOW = 3, 40, 1024, 64
LOSS = ft.losses.softmax_cross_entropy
SLOW = ("nu_log", "theta_log", "gamma_log")


def of_memory(power):
    """Return a transformation that multiplies the updates of a module by (1 - |lam|)^power."""

    def update(updates, state, params):
        cell = params.blocks.cell
        scale = (1 - jnp.exp(-jnp.exp(cell.nu_log))) ** power

        def one(path, leaf):
            names = [getattr(entry, "name", None) for entry in path]
            if "cell" not in names or names[-1] not in (*SLOW, "B_re", "B_im"):
                return leaf
            return leaf * (scale if leaf.ndim == 2 else scale[..., None])

        return jax.tree.map_with_path(one, updates), state

    return optax.GradientTransformation(optax.init_empty_state, update)


def decayed(optimizer, after):
    return optax.chain(optimizer, optax.scale_by_schedule(lambda n: (1 + n / after) ** -0.5))


WAYS = {
    "rule": {},
    "default": {"train_encoder": None},
    "full credit": {"depth": "all"},
    "front held": {"optimizer": lambda rate: holding(ft.adamw(rate), in_front_of_recurrences)},
    "fresh sensitivities": {"refresh": True},
    "recurrence fixed": {"optimizer": lambda rate: ft.adamw(rate, recurrent_factor=0.0)},
    "rates by memory": {"optimizer": lambda rate: optax.chain(ft.adamw(rate), of_memory(1.0))},
    "eps 1e-2": {"optimizer": lambda rate: ft.adamw(rate, eps=1e-2)},
    "rate decay": {"optimizer": lambda rate: decayed(ft.adamw(rate), 1000)},
    "bounded": {"optimizer": lambda rate: ft.bounded(ft.adamw(rate))},
    "hybrid": {"rule": ft.HYBRID},
}
"""Ways to learn: ONLINE and `ft.adamw` with all parameters trained, and one thing changed."""

COMMANDS = (
    "foretrace stream",
    "foretrace stream --size small",
    "foretrace stream --size small --rule hybrid",
    "foretrace stream --size small --rule online --chunk 16",
)


def cells(what, ways=WAYS, layers=(1,), chunks=(1,), rates=(1e-3,), rows=100_000, seeds=2):
    """Return the cells.

    Args:
        what: learners or commands.
        seeds: number of seeds.
    """
    if what == "commands":
        return ledger.grid(command=COMMANDS, rows=rows)
    return ledger.grid(rate=rates, layers=layers, chunk=chunks, way=ways, rows=rows, seeds=seeds)


def measure(cell):
    """Return accuracy by fortieths of rows, and what else a learner or a command says."""
    return follow(cell) if "command" in cell else learn(cell)


def follow(cell):
    """Run the command on a file; return accuracy by fortieths of rows, and warnings.

    An interrupted run in the folder goes on from its checkpoint.
    """
    rows, every = cell["rows"], str(cell["rows"] // PARTS)
    source, run = WORK / f"{rows}.csv", WORK / f"{rows} {cell['command']}".replace(" ", "-")
    if not source.exists():
        WORK.mkdir(parents=True, exist_ok=True)
        xs, ys = make_stream(0, rows)
        write(source, x=[f"{x:.5f}" for x in xs[:, 0].tolist()], y=ys)
    program, *options = cell["command"].split()
    words = [*options, str(source), "--target", "y", "--run-dir", str(run)]
    words += ["--log-every", every, "--checkpoint-every", every]
    if (run / "checkpoint.safetensors").exists():
        words = ["resume", str(run)]
    subprocess.run([sys.executable, "-m", program, *words], stdout=subprocess.DEVNULL, check=True)
    lines = read_metrics(run / "metrics.jsonl")
    if lines[-1]["kind"] != "result":
        raise SystemExit(f"stopped at row {lines[-1]['step']}; the same command continues")
    parts = [round(line["accuracy"], 4) for line in lines if line["kind"] == "stream"]
    return {
        "best": max(parts),
        "last": float(np.mean(parts[-4:]).round(4)),
        "lowest after the best": min(parts[parts.index(max(parts)) :]),
        "warnings": [warning for line in lines for warning in line.get("warnings", [])],
        "parts": parts,
    }


def make_learner(cell, seed):
    way = {"train_encoder": True, **WAYS[cell["way"]]}
    rule, optimizer = way.get("rule", ft.ONLINE), way.get("optimizer", ft.adamw)(cell["rate"])
    if "depth" in way:
        rule = rule.with_depth(cell["layers"])
    network = lru_network(1, 2, 32, cell["layers"], key=jax.random.key(seed))
    return classifier(network, rule, optimizer=optimizer, train_encoder=way["train_encoder"])


def make_stream(seed, rows):
    """Return inputs (T, 1) and classes (T,)."""
    xs = np.random.default_rng(1000 + seed).standard_normal((rows, 1)).astype(np.float32)
    return xs, np.concatenate([np.zeros(BACK), xs[:-BACK, 0] > 0]).astype(np.int32)


def learn(cell):
    """Return each seed's accuracy by part of the rows, and the final probe."""
    chunk, seeds = cell["chunk"], range(cell["seeds"])
    learners = [make_learner(cell, seed) for seed in seeds]
    learner, refresh = learners[0], WAYS[cell["way"]].get("refresh", False)
    calls = cell["rows"] // chunk // PARTS
    places = max(WINDOW // chunk, 1)

    def one(now, data):
        (state, ring, past), (xs, ys) = now, data
        state, info = learner.step(state, xs, ys)
        if refresh:
            # State and sensitivity again, from the carry of `places` chunks ago, with the
            # parameters of now.
            past = jnp.concatenate([past[chunk:], xs])
            oldest = jax.tree.map(lambda leaf: leaf[0], ring)
            carry = ft.forward(state.network, oldest, past, rule=learner.rule)[1]
            state = state._replace(carry=carry)
            ring = jax.tree.map(
                lambda leaf, new: jnp.concatenate([leaf[1:], new[None]]), ring, carry
            )
        return (state, ring, past), (jnp.argmax(info.outputs, -1) == ys).mean()

    @jax.jit
    @jax.vmap
    def part(now, xs, ys):
        now, right = lax.scan(one, now, (xs, ys))
        return now, right.mean()

    @jax.jit
    @jax.vmap
    def probe(network, xs, ys):
        rules = (learner.rule, ft.BPTT)
        return compare(*(ft.gradient(network, None, xs, ys, rule=r, loss=LOSS)[1] for r in rules))

    def start(learner):
        state = learner.init()
        if not refresh:
            return state, None, None
        ring = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], places, axis=0), state.carry)
        return state, ring, jnp.zeros((places * chunk, 1))

    now = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(start, learners))
    streams = (make_stream(seed, calls * PARTS * chunk) for seed in seeds)
    xs, ys = (np.stack(arrays) for arrays in zip(*streams, strict=True))
    accuracy = []
    for i in range(PARTS):
        cut = slice(i * calls * chunk, (i + 1) * calls * chunk)
        data = (v[:, cut].reshape(len(seeds), calls, chunk, *v.shape[2:]) for v in (xs, ys))
        now, right = part(now, *data)
        accuracy.append(np.asarray(right).round(4).tolist())
    network, encoder = now[0].network, now[0].network.encoder
    weight, bias = (jnp.linalg.norm(p, axis=-1) for p in (encoder.weight[..., 0], encoder.bias))
    moduli = jnp.exp(-jnp.exp(network.blocks.cell.nu_log)).max(axis=(1, 2))
    probed = probe(network, xs[:, -PROBE:], ys[:, -PROBE:])
    by_seed = np.array(accuracy).T
    return {
        "best": by_seed.max(1).tolist(),
        "last": by_seed[:, -4:].mean(1).round(4).tolist(),
        "lowest after the best": [row[row.argmax() :].min().tolist() for row in by_seed],
        "encoder weight / bias": np.asarray(weight / bias).round(3).tolist(),
        "largest modulus": np.asarray(moduli).round(5).tolist(),
        "probe": jax.tree.map(lambda v: np.asarray(v).round(4).tolist(), probed),
        "parts": by_seed.tolist(),
    }


def compare(found, exact):
    """Return cosine and ratio of norms of two gradients for each group of parameters."""
    groups = {
        "front": lambda g: (g.encoder, jax.tree.map(lambda leaf: leaf[0], g.blocks.norm)),
        "cells": lambda g: g.blocks.cell,
        "rest": lambda g: (g.blocks.glu, g.decoder),
    }
    out = {}
    for name, of in groups.items():
        a, b = (ravel_pytree(of(gradient))[0] for gradient in (found, exact))
        ours, norm = jnp.linalg.norm(a), jnp.linalg.norm(b)
        out[name] = jnp.stack([a @ b / (ours * norm), ours / norm, norm / PROBE])
    return out


if __name__ == "__main__":
    ledger.run(__doc__, "forgetting", cells, measure)
