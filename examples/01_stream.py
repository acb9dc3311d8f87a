"""Learn from a stream that never ends, one step at a time: repeat the input of `DELAY` steps ago.

The learner sees each symbol once. It predicts before it learns, so the printed accuracy belongs to
a network that has not seen the answer yet. Its carry from step to step does not grow.
"""

import argparse

import jax
import numpy as np

import foretrace as ft

SYMBOLS, DELAY = 3, 4


def stream(seed: int):
    """Yield (x, y): a random symbol, one-hot, and the symbol of DELAY steps ago."""
    random = np.random.default_rng(seed)
    past = [0] * DELAY
    while True:
        symbol = int(random.integers(SYMBOLS))
        yield np.eye(SYMBOLS, dtype=np.float32)[symbol], past[0]
        past = [*past[1:], symbol]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8000)
    parser.add_argument("--report", type=int, default=1000, help="steps between printed lines")
    options = parser.parse_args()

    network = ft.Network(
        SYMBOLS,
        SYMBOLS,
        model_size=32,
        depth=2,
        cell=ft.LRU.factory(state_size=32),
        key=jax.random.key(0),
    )
    learner = ft.Learner(
        network, rule=ft.ONLINE, optimizer=ft.adamw(1e-3), loss=ft.losses.softmax_cross_entropy
    )
    state = learner.init()
    right, losses = [], []
    for step, (x, y) in zip(range(1, options.steps + 1), stream(seed=0), strict=False):
        state, info = learner.step(state, x[None], np.array([y]))  # a chunk of one step
        right.append(np.argmax(info.outputs[0]) == y)  # the output from before the update
        losses.append(float(info.loss))
        if step % options.report == 0:
            window = slice(-options.report, None)
            print(
                f"step {step}: loss {np.mean(losses[window]):.3f}, accuracy "
                f"{np.mean(right[window]):.1%}"
            )
    carried = sum(leaf.size for leaf in jax.tree.leaves(state.carry))
    print(f"carried from step to step: {carried} numbers, however long the stream")


if __name__ == "__main__":
    main()
