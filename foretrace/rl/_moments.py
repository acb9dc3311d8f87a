"""Running mean and variance, and what they normalise: observations, and rewards by the spread of returns."""

from typing import NamedTuple

import jax.numpy as jnp

from foretrace._types import Array, Bool, Float


class Moments(NamedTuple):
    """Running moments of rows.

    Args:
        rows: number of rows; it no longer grows where its dtype cannot tell it from the next number.
        mean: mean of the rows.
        squares: sum of the squared distances from the mean.
    """

    rows: Float[Array, ""]
    mean: Float[Array, "..."]
    squares: Float[Array, "..."]

    @classmethod
    def zero(cls, shape: tuple[int, ...], dtype: jnp.dtype) -> "Moments":
        """Return the moments of no rows."""
        return cls(jnp.zeros((), dtype), jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))

    def including(self, more: Float[Array, "B ..."]) -> "Moments":
        """Return the moments with more rows.

            mean    <- mean + (m - mean) * b / rows
            squares <- squares + s + (m - mean)^2 * (rows - b) * b / rows

        with number b, mean m and squares s of the new rows. For one row it is the recursion of Welford.

        Source: Welford, Technometrics, 1962; Chan, Golub and LeVeque, The American Statistician, 1983.

        >>> import jax.numpy as jnp
        >>> moments = Moments.zero((), jnp.float32).including(jnp.array([1.0])).including(jnp.array([3.0, 5.0]))
        >>> round(float(moments.mean), 3), round(float(moments.variance), 3)
        (3.0, 4.0)
        """
        new, mean = more.shape[0], more.mean(0)
        rows, away = self.rows + new, mean - self.mean
        squares = self.squares + ((more - mean) ** 2).sum(0) + away**2 * (self.rows * new / rows)
        return Moments(rows, self.mean + away * (new / rows), squares)

    @property
    def variance(self) -> Float[Array, "..."]:
        """Sample variance; 1 for less than two rows."""
        return jnp.where(self.rows > 1, self.squares / jnp.maximum(self.rows - 1, 1), 1.0)

    def normalised(self, row: Float[Array, "*B I"]) -> Float[Array, "*B I"]:
        """Return rows less the mean, divided by the standard deviation."""
        return (row - self.mean) / jnp.sqrt(self.variance + 1e-8)


class RewardScale(NamedTuple):
    """Rewards are divided by the standard deviation of the discounted sum of past rewards.

    Args:
        total: discounted sum of past rewards of each stream.
        moments: moments of these sums, over all streams.
    """

    total: Float[Array, "*B"]
    moments: Moments

    @classmethod
    def zero(cls, front: tuple[int, ...], dtype: jnp.dtype) -> "RewardScale":
        """Return the scale before the first reward."""
        return cls(jnp.zeros(front, dtype), Moments.zero((), dtype))

    def including(self, reward: Float[Array, "*B"], discount: float, done: Bool[Array, "*B"]) -> "RewardScale":
        """Return the scale with one more reward of each stream; a sum starts anew behind the end of an episode."""
        total = discount * self.total + reward
        return RewardScale(jnp.where(done, 0.0, total), self.moments.including(total.reshape(-1)))

    def scaled(self, reward: Float[Array, "*B"]) -> Float[Array, "*B"]:
        """Return rewards in units of the standard deviation."""
        return reward / jnp.sqrt(self.moments.variance + 1e-8)
