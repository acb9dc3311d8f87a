"""Every learning rule on one small copy task: its loss, and its alignment with BPTT."""

import argparse

import jax
import optax
from rich.console import Console
from rich.table import Table

import foretrace as ft
from foretrace.tasks.copy import Copy

RULES = {
    "RESERVOIR": ft.RESERVOIR,
    "SPATIAL": ft.SPATIAL,
    "TRUNCATED": ft.TRUNCATED,
    "ONLINE": ft.ONLINE,
    "RTRL": ft.RTRL,
    "HYBRID": ft.HYBRID,
    "BPTT": ft.BPTT,
}
BATCH = 32


def train(network, task, rule, steps: int):
    """Train on whole sequences, all steps in one compiled program; return the network."""
    # Without `warn` it would say what is plain in the table: some rules leave parameters untrained.
    learner = ft.Learner(
        network,
        rule=rule,
        optimizer=optax.adam(5e-3),
        loss=task.loss,
        whole_sequences=True,
        warn=False,
    )

    def one(step, state):
        xs, ys, mask = task.batch(seed=0, step=step, size=BATCH)
        return learner.step(state, xs, ys, mask=mask)[0]

    return jax.jit(lambda state: jax.lax.fori_loop(0, steps, one, state))(learner.init()).network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--cell", choices=("LRU", "LinearRNN"), default="LRU")
    parser.add_argument("--rules", nargs="+", choices=RULES, default=list(RULES), metavar="RULE")
    options = parser.parse_args()

    task = Copy(pattern_length=6, padding=4, bits=3)
    cell = getattr(ft, options.cell).factory(state_size=16)
    sizes = {
        "input_size": task.input_size,
        "output_size": task.output_size,
        "model_size": 24,
        "depth": 2,
    }
    network = ft.Network(**sizes, cell=cell, key=jax.random.key(0))
    xs, ys, mask = task.evaluation("validation", seed=0, index=0, size=100)
    shape = f"{task.pattern_length} x {task.bits} bits"
    title = f"copy {shape}, {options.cell} x 2, {options.steps} steps (no skill: loss 0.693)"
    grid = Table("rule", "loss", "cosine with BPTT: at first", "trained", title=title)
    for name in options.rules:
        rule = RULES[name]
        trained = train(network, task, rule, options.steps)
        loss, _, _ = ft.gradient(trained, None, xs, ys, rule=ft.BPTT, loss=task.loss, mask=mask)
        cosines = [
            ft.alignment(which, xs, ys, rule=rule, loss=task.loss, mask=mask).total
            for which in (network, trained)
        ]
        grid.add_row(name, f"{loss:.4f}", *(f"{cosine:.3f}" for cosine in cosines))
    Console().print(grid)


if __name__ == "__main__":
    main()
