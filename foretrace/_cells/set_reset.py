"""Set/reset unit: a latch whose set and reset conditions are conjunctions of two gates."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from foretrace._cells.abstract import AbstractDiagonalCell, Coefficients
from foretrace._cells.parts import check_sizes, normal, spaced_timescales
from foretrace._types import Array, Float, Pair, PRNGKeyArray

_LARGEST_GAIN = 10.0


class SetReset(AbstractDiagonalCell):
    r"""Set/reset unit: N independent latches, each set by one conjunction and reset by another.

        q_j = sigmoid(W_j x_t + b_j)  for j = 1 .. 4,  s = q_1 q_2,  r = q_3 q_4
        h_t = (1 - s) (1 - r) * h_{t-1} + s - r
        y_t = [c h_t, c h_t * tanh(W_o x_t + b_o)]

    The state lies in [-1, 1]: s sets it to 1, r resets it to -1, and if both are zero, the state is
    kept. The product of two gates opens only if two conditions hold together, which one gate cannot
    express. The second output multiplies the state by a function of the present input. At zero
    input, b gives each module its time constant tau = 1 / (s + r). The gain c = min(sqrt(tau), 10)
    is constant. It makes the outputs of slow modules, whose states change little at first, as large
    as the outputs of fast modules.

    The coefficients are W and b, the parameters of the gates. Both count as recurrent, because they
    determine the decay. W is sampled from N(0, 1/H), W_o from N(0, 1.5^2/H) and b_o from N(0, 1/4).

    Args:
        input_size: number of input features, H.
        state_size: number of modules, N. By default the output is as wide as the input: N is H
            without the second output, and H / 2 rounded up with it. If H is odd, the last product
            is left out.
        products: whether there is a second output, the product of state and input.
        timescales: shortest and longest time constant at zero input, in steps. The time constants
            of the modules are evenly spaced in this range on a logarithmic scale.
        key: PRNG key for the initial values.

    Raises:
        ValueError: a size is below one, or the timescales are not 1/2 < shortest <= longest.

    >>> import foretrace as ft, jax
    >>> cell = ft.SetReset(input_size=3, state_size=4, key=jax.random.key(0))
    >>> cell.output_size, cell.independent
    (8, True)

    Source: the set/reset latch of digital circuits, with differentiable conditions.
    """

    W: Float[Array, "N 4 H"]
    b: Float[Array, "N 4"]
    W_o: Float[Array, "N H"] | None
    b_o: Float[Array, "N"] | None
    input_size: int = eqx.field(static=True)
    state_size: int = eqx.field(static=True)
    num_outputs: int = eqx.field(static=True)
    shortest: float = eqx.field(static=True)
    longest: float = eqx.field(static=True)

    module_readout: ClassVar[tuple[str, ...]] = ("W_o", "b_o")

    def __init__(
        self,
        input_size: int,
        state_size: int | None = None,
        *,
        products: bool = True,
        timescales: tuple[float, float] = (2.0, 500.0),
        key: PRNGKeyArray,
    ):
        check_sizes("SetReset", input_size=input_size)
        each = 2 if products else 1
        self.num_outputs = input_size if state_size is None else each * state_size
        state_size = -(-input_size // each) if state_size is None else state_size
        check_sizes("SetReset", state_size=state_size)
        tau = spaced_timescales("SetReset", timescales, state_size)
        if tau[0] <= 0.5:
            raise ValueError(
                f"SetReset(timescales={timescales}): the shortest must be above 1/2 step, at which "
                "all gates are always open"
            )
        self.input_size, self.state_size = input_size, state_size
        self.shortest, self.longest = map(float, timescales)
        gates, out, bias = jax.random.split(key, 3)
        self.W = normal(gates, (state_size, 4, input_size), input_size)
        # s = r = 1 / (2 tau), and each of them is a product of two equal gates.
        self.b = jnp.broadcast_to(
            -jnp.log(jnp.sqrt(2 * jnp.asarray(tau)) - 1)[:, None], (state_size, 4)
        )
        self.W_o = 1.5 * normal(out, (state_size, input_size), input_size) if products else None
        self.b_o = 0.5 * jax.random.normal(bias, (state_size,)) if products else None

    @property
    def output_size(self) -> int:
        """Number of features of the readout: one for each module, or two with products."""
        return self.num_outputs

    @property
    def gain(self) -> np.ndarray:
        """Constant gain c of each module."""
        tau = spaced_timescales("SetReset", (self.shortest, self.longest), self.state_size)
        return np.minimum(np.sqrt(tau), _LARGEST_GAIN)

    def coefficients(self) -> Coefficients:
        """Return weights and biases of the four gates, with the module axis in front."""
        return Coefficients({"W": self.W, "b": self.b}, {})

    def decay_and_drive(self, theta: Coefficients, x: Float[Array, "H"]) -> Pair:
        """Return (1 - s) (1 - r) and s - r."""
        q = jax.nn.sigmoid(jnp.inner(x, theta.recurrent["W"]) + theta.recurrent["b"])
        s, r = q[:, 0] * q[:, 1], q[:, 2] * q[:, 3]
        return (1 - s) * (1 - r), s - r

    def readout(self, h: Float[Array, "N"], x: Float[Array, "H"]) -> Float[Array, "O"]:
        """Return `[c h, c h tanh(W_o x + b_o)]`, or `c h` without products."""
        y = jnp.asarray(self.gain, h.dtype) * h
        if self.W_o is None or self.b_o is None:
            return y
        return jnp.concatenate([y, y * jnp.tanh(jnp.inner(x, self.W_o) + self.b_o)])[
            : self.num_outputs
        ]
