"""Prediction: TD(lambda), with a cumulant and a discount for each step."""

from typing import Any

import jax.numpy as jnp

from foretrace._network import Network
from foretrace._types import Array, Float, PRNGKeyArray
from foretrace.rl._agent import AbstractAgent


class ValuePrediction(AbstractAgent):
    """Predict the discounted sum of what is to come, by TD(lambda) from one stream.

        v(s_t)  ->  sum_k discount_{t+1} … discount_{t+k} * cumulant_{t+k+1}

    The network has one output. What `act` returns is the prediction, and `learn` takes the cumulant as its reward; with
    a discount for each step it is a general value function.

    Args:
        network: network with one output.
        options: those of `AbstractAgent`.

    Raises:
        TypeError, ValueError: as in `AbstractAgent`; a network with more than one output.

    Source: Sutton, Learning to predict by the methods of temporal differences, 1988; Sutton et al., Horde, AAMAS 2011.

    >>> import foretrace as ft, jax
    >>> network = ft.Network(2, 1, model_size=4, depth=1, cell=ft.LRU.factory(state_size=4), key=jax.random.key(0))
    >>> agent = ft.rl.ValuePrediction(network, rule=ft.ONLINE, discount=0.9)
    >>> state = agent.init()
    >>> for cumulant in (0.0, 1.0, 0.0):
    ...     prediction, state = agent.act(state, [cumulant, 1.0])
    ...     state, info = agent.learn(state, cumulant)
    >>> prediction.shape, int(state.step)
    ((), 2)
    """

    def __init__(self, network: Network, **options: Any):
        super().__init__(network, **options)
        if network.output_size != 1:
            raise ValueError(f"ValuePrediction: the network has {network.output_size} outputs, expected 1, the value")

    @property
    def action_count(self) -> int:
        """1: there is nothing to choose."""
        return 1

    def _noise(self, key: PRNGKeyArray, step: Array) -> Float[Array, "1"]:
        return jnp.zeros(1, self._dtype)

    def _action(self, output: Float[Array, "1"], noise: Float[Array, "1"]) -> Float[Array, ""]:
        return output[0]

    def _objective(self, output: Float[Array, "1"], noise: Float[Array, "1"]) -> Float[Array, ""]:
        return output[0]

    def _value(self, output: Float[Array, "1"], noise: Float[Array, "1"]) -> Float[Array, ""]:
        return output[0]
