"""Every learning rule on one small copy task, side by side: what each reaches and how its gradient aligns with BPTT."""

import argparse

import foretrace as ft
import jax
import optax
from foretrace.tasks.copy import Copy
from rich.console import Console
from rich.table import Table

RULES = (ft.RESERVOIR, ft.SPATIAL, ft.TRUNCATED, ft.ONLINE, ft.RTRL, ft.HYBRID, ft.BPTT)
BATCH, CHUNK = 32, 4


def train(network, task, rule, steps: int):
    """Train on whole sequences and return the network and its loss on sequences it has not seen."""
    # Without `warn` it would say what is plain in the table: some rules leave parameters untrained.
    learner = ft.Learner(
        network, rule=rule, optimizer=optax.adam(5e-3), loss=task.loss, whole_sequences=True, warn=False
    )

    @jax.jit
    def one(step, state):
        xs, ys, mask = task.batch(seed=0, step=step, size=BATCH)
        return learner.step(state, xs, ys, mask=mask)[0]

    state = jax.lax.fori_loop(0, steps, one, learner.init())
    xs, ys, mask = task.validation(seed=0, index=0, size=200)
    loss, _, _ = ft.gradient(state.network, None, xs, ys, rule=rule, loss=task.loss, mask=mask)
    return state.network, float(loss)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--cell", choices=("LRU", "LinearRNN"), default="LRU")
    options = parser.parse_args()

    task = Copy(pattern_length=4, padding=2, bits=3)
    cell = getattr(ft, options.cell).factory(state_size=16)
    network = ft.Network(task.input_size, task.output_size, model_size=24, depth=2, cell=cell, key=jax.random.key(0))
    xs, ys, mask = task.validation(seed=0, index=1, size=BATCH)
    title = f"copy {task.pattern_length} x {task.bits} bits, {options.cell} x 2, {options.steps} steps; no skill: 0.693"
    grid = Table("rule", "loss", "cosine with BPTT, before", "and after training", title=title)
    for rule in RULES:
        trained, loss = train(network, task, rule, options.steps)
        cosines = [
            ft.alignment(which, xs, ys, rule=rule, loss=task.loss, mask=mask, chunk=CHUNK).total
            for which in (network, trained)
        ]
        grid.add_row(str(rule), f"{loss:.4f}", *(f"{cosine:.3f}" for cosine in cosines))
    Console().print(grid)
    print(f"Trained on whole sequences; the cosines are of gradients in chunks of {CHUNK} steps.")


if __name__ == "__main__":
    main()
