"""Element-wise LSTM: independent modules with two state dimensions each."""

import equinox as eqx
import jax
import jax.numpy as jnp

from foretrace._cells.abstract import AbstractCell, Coefficients
from foretrace._cells.parts import by_gate, checked_sizes, normal
from foretrace._types import Array, Float, Pair, PRNGKeyArray


class ElementwiseLSTM(AbstractCell):
    r"""Long short-term memory with diagonal recurrent weights: N independent modules, state (h, c).

        f, i, o = sigmoid(W x + w * h + b) for each gate,  g = tanh(W x + w * h + b)
        c' = f * c + i * g,  h' = o * tanh(c')

    Input kernels are sampled from N(0, 1/fan-in), recurrent weights uniformly from (-1, 1). Biases
    are zero, except for the forget gate's, which begins at one.

    Args:
        input_size: number of input features, H.
        state_size: number of modules, N. Default: the input size.
        key: PRNG key for the initial values.

    Raises:
        ValueError: a size is below one.

    >>> import foretrace as ft, jax
    >>> len(ft.ElementwiseLSTM(input_size=3, key=jax.random.key(0)).init_state())
    2

    Source: Irie et al., Exploring the promise and limits of real-time recurrent learning, ICLR 2024
        (eLSTM); gates as in Hochreiter and Schmidhuber (1997) with the forget gate of Gers et al.
        (2000).
    """

    W: Float[Array, "N 4 H"]
    w: Float[Array, "N 4"]
    b: Float[Array, "N 4"]
    input_size: int = eqx.field(static=True)
    state_size: int = eqx.field(static=True)

    def __init__(self, input_size: int, state_size: int | None = None, *, key: PRNGKeyArray):
        input_size, state_size = checked_sizes("ElementwiseLSTM", input_size, state_size)
        self.input_size, self.state_size = input_size, state_size
        feed, back = jax.random.split(key)
        self.W = normal(feed, (state_size, 4, input_size), input_size)
        self.w = jax.random.uniform(back, (state_size, 4), minval=-1.0, maxval=1.0)
        self.b = jnp.zeros((state_size, 4)).at[:, 0].set(1.0)

    def coefficients(self) -> Coefficients:
        """Return the weights of each gate, with the module axis in front."""
        return Coefficients(
            by_gate(self.w, ("w_f", "w_i", "w_o", "w_g")),
            by_gate(self.W, ("W_f", "W_i", "W_o", "W_g"))
            | by_gate(self.b, ("b_f", "b_i", "b_o", "b_g")),
        )

    def init_state(self) -> Pair:
        """Return the zero state (h, c)."""
        return jnp.zeros_like(self.b[:, 0]), jnp.zeros_like(self.b[:, 0])

    def step(self, theta: Coefficients, own: Pair, others: Pair, x: Float[Array, "H"]) -> Pair:
        """Advance by one step; `others` is not read."""
        h, c = own
        past, now = theta.recurrent, theta.feedforward
        f, i, o, g = (
            jnp.inner(x, now[f"W_{gate}"]) + past[f"w_{gate}"] * h + now[f"b_{gate}"]
            for gate in ("f", "i", "o", "g")
        )
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return h, c
