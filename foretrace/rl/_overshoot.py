"""The step size that cannot overshoot: ObGD."""

import dataclasses

import jax
import jax.numpy as jnp

from foretrace._types import Array, Arrays, Float


@dataclasses.dataclass(frozen=True)
class ObGD:
    """Overshooting-bounded gradient descent: the error bounds the step along the trace.

        M        = learning_rate * kappa * max(|delta|, 1) * ||z||_1
        step     = learning_rate / max(M, 1)
        theta   <- theta + step * delta * z

    One step changes the prediction whose gradient is in the trace z by less than its error delta,
    where the prediction is smooth enough for kappa. In a batch each stream has a step of its own,
    and the changes are averaged.

    Args:
        learning_rate: largest step size.
        kappa: how much shorter than the bound a step stays; above 1.

    Raises:
        ValueError: a value that is not positive.

    Source: Elsayed, Vasan and Mahmood, Streaming deep reinforcement learning finally works, arXiv
        2410.14606.

    >>> import jax.numpy as jnp
    >>> float(ObGD(kappa=2.0).step_size(jnp.array(0.5), [jnp.array([3.0, -1.0])]))
    0.125
    """

    learning_rate: float = 1.0
    kappa: float = 2.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"ObGD({name}={value}) must be positive")

    def step_size(self, td_error: Float[Array, ""], trace: Arrays) -> Float[Array, ""]:
        """Return the step size for a temporal-difference error and a trace of one stream."""
        size = sum(jnp.abs(leaf).sum() for leaf in jax.tree.leaves(trace))
        bound = self.learning_rate * self.kappa * jnp.maximum(jnp.abs(td_error), 1.0) * size
        return self.learning_rate / jnp.maximum(bound, 1.0)
