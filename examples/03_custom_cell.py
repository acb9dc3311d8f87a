"""A recurrent layer of your own: its one step, checked by every law, trained online.

The cell is a minimal gated unit whose modules are independent:

    f = sigmoid(W_f x + w_f * h + b_f),   h' = f * h + (1 - f) * tanh(W_h x)
"""

import argparse

import equinox as eqx
import jax
import jax.numpy as jnp

import foretrace as ft
from foretrace.tasks.copy import Copy


class GatedUnit(ft.AbstractCell):
    W_f: jax.Array
    W_h: jax.Array
    w_f: jax.Array
    b_f: jax.Array
    input_size: int = eqx.field(static=True)
    state_size: int = eqx.field(static=True)

    def __init__(self, input_size, *, key):
        self.input_size = self.state_size = input_size
        f, h = jax.random.split(key)
        scale = input_size**-0.5
        self.W_f = scale * jax.random.normal(f, (input_size, input_size))
        self.W_h = scale * jax.random.normal(h, (input_size, input_size))
        self.w_f = jnp.zeros(input_size)
        self.b_f = jnp.linspace(0.0, 3.0, input_size)  # forget at many speeds

    def coefficients(self):
        return ft.Coefficients(
            recurrent={"w_f": self.w_f},
            feedforward={"W_f": self.W_f, "W_h": self.W_h, "b_f": self.b_f},
        )

    def init_state(self):
        return jnp.zeros_like(self.b_f)

    def step(self, theta, own, others, x):  # independent modules: `others` is not read
        feed = theta.feedforward
        f = jax.nn.sigmoid(feed["W_f"] @ x + theta.recurrent["w_f"] * own + feed["b_f"])
        return f * own + (1 - f) * jnp.tanh(feed["W_h"] @ x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    options = parser.parse_args()

    report = ft.testing.check_cell(GatedUnit(input_size=3, key=jax.random.key(0)))
    print(
        f"obeys {len(report.laws)} laws, largest error {max(law.error for law in report.laws):.0e}"
    )

    task = Copy(pattern_length=3, padding=1, bits=2)
    network = ft.Network(
        task.input_size,
        task.output_size,
        model_size=32,
        depth=2,
        cell=GatedUnit.factory(),
        key=jax.random.key(1),
    )
    learner = ft.Learner(
        network,
        rule=ft.ONLINE,
        optimizer=ft.adamw(1e-2),
        loss=task.loss,
        batch_size=16,
        whole_sequences=True,
    )
    state = learner.init()
    draw = jax.jit(lambda step: task.batch(seed=0, step=step, size=16))
    for step in range(options.steps):
        xs, ys, mask = draw(step)
        state, info = learner.step(state, xs, ys, mask=mask)
        if step == 0 or (step + 1) % 50 == 0:
            print(f"step {step + 1}: loss {info.loss:.3f}")


if __name__ == "__main__":
    main()
