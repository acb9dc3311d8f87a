"""Running mean and variance, which normalise observations and scale rewards."""

from typing import NamedTuple

import jax.numpy as jnp
import optax

from foretrace._types import Array, Float
from foretrace.rl._transition import Outcome

MOST_ROWS = 1e6
"""Number of rows above which old rows lose weight, because float32 cannot count beyond 2^24."""


class Moments(NamedTuple):
    """Running moments of rows of numbers.

    Args:
        rows: number of rows, at most a million. Above this number, the weight of old rows decays
            exponentially.
        mean: mean of the rows.
        squares: sum of the squared differences from the mean.
    """

    rows: Float[Array, ""]
    mean: Float[Array, "..."]
    squares: Float[Array, "..."]

    @classmethod
    def zero(cls, shape: tuple[int, ...], dtype: jnp.dtype) -> "Moments":
        """Return the moments of zero rows."""
        return cls(jnp.zeros((), dtype), jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))

    def including(self, more: Float[Array, "..."]) -> "Moments":
        """Return the moments after one more row of each stream.

            mean    <- mean + (m - mean) * b / rows
            squares <- squares + s + (m - mean)^2 * (rows - b) * b / rows

        Here b, m and s are the number, the mean and the squares of the new rows. For a single row,
        this is Welford's recursion. If the number of rows exceeds a million, it is set to a
        million, and the squares are reduced in proportion.

        Source: Welford, Technometrics, 1962; Chan, Golub and LeVeque, The American Statistician,
            1983.

        >>> import jax.numpy as jnp
        >>> moments = (
        ...     Moments.zero((), jnp.float32)
        ...     .including(jnp.array([1.0]))
        ...     .including(jnp.array([3.0, 5.0]))
        ... )
        >>> round(float(moments.mean), 3), round(float(moments.variance), 3)
        (3.0, 4.0)
        """
        more = more.reshape(-1, *self.mean.shape)
        new, mean = len(more), more.mean(0)
        rows, away = self.rows + new, mean - self.mean
        added = ((more - mean) ** 2).sum(0) + away**2 * (self.rows * new / rows)
        kept = jnp.minimum(rows, MOST_ROWS)
        # In one sum, so that squares far larger than the new term are rounded only once.
        squares = self.squares + (added - (self.squares + added) * ((rows - kept) / rows))
        return Moments(kept, self.mean + away * (new / rows), squares)

    @property
    def variance(self) -> Float[Array, "..."]:
        """Sample variance; 1 if there are fewer than two rows."""
        return jnp.where(self.rows > 1, self.squares / jnp.maximum(self.rows - 1, 1), 1.0)

    def normalised(self, row: Float[Array, "*B I"]) -> Float[Array, "*B I"]:
        """Return rows minus the mean, divided by the standard deviation."""
        return (row - self.mean) / jnp.sqrt(self.variance + 1e-8)


class RewardScale(NamedTuple):
    """Scale of rewards: the standard deviation of the discounted sum of past rewards.

    Args:
        total: discounted sum of the past rewards of each stream.
        moments: moments of these sums over all streams.
    """

    total: Float[Array, "*B"]
    moments: Moments

    @classmethod
    def zero(cls, front: tuple[int, ...], dtype: jnp.dtype) -> "RewardScale":
        """Return the scale before the first reward."""
        return cls(jnp.zeros(front, dtype), Moments.zero((), dtype))

    def scaled(self, outcome: Outcome, discount: float) -> tuple["RewardScale", Outcome]:
        """Return the scale after one more reward of each stream, and the scaled reward.

        At the start of an episode, the sum starts again at zero.
        """
        total = discount * self.total + outcome.reward
        more = RewardScale(total, self.moments.including(total))
        total, moments = optax.tree.where(outcome.known.any(), more, self)
        reward = outcome.reward / jnp.sqrt(moments.variance + 1e-8)
        scale = RewardScale(jnp.where(outcome.done, 0.0, total), moments)
        return scale, outcome._replace(reward=reward)
