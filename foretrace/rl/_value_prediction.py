"""Prediction: TD(lambda), with a cumulant and a discount at each step."""

import dataclasses

from foretrace.rl._method import Method


@dataclasses.dataclass(frozen=True)
class ValuePrediction(Method):
    """Predict the discounted sum of future cumulants, by TD(lambda) from one stream.

        v(s_t)  ->  sum_k discount_{t+1} … discount_{t+k} * cumulant_{t+k+1}

    The network has one output. The action of a step is the prediction, and the reward of a
    transition is the cumulant. With a separate discount at each step, this is a general value
    function.

    Source: Sutton, Learning to predict by the methods of temporal differences, 1988; Sutton et al.,
        Horde, AAMAS 2011.

    >>> import foretrace as ft, jax
    >>> cell = ft.LRU.factory(state_size=4)
    >>> network = ft.Network(2, 1, model_size=4, depth=1, cell=cell, key=jax.random.key(0))
    >>> agent = ft.rl.Agent(network, ft.rl.ValuePrediction(), rule=ft.ONLINE, discount=0.9)
    >>> start = ft.rl.Transition([0.0, 1.0], first=True)
    >>> prediction, state, _ = agent.step(agent.init(), start)
    >>> for cumulant in (1.0, 0.0):
    ...     transition = ft.rl.Transition([cumulant, 1.0], reward=cumulant)
    ...     prediction, state, info = agent.step(state, transition)
    >>> prediction.shape, int(state.step)
    ((), 2)
    """

    def check(self, outputs: int) -> None:
        """Raise a ValueError if a network with this number of outputs does not fit."""
        if outputs != 1:
            raise ValueError(
                f"ValuePrediction: the network has {outputs} outputs, expected 1, the value"
            )

    def action_count(self, outputs: int) -> int:
        """Return 1, because there are no actions."""
        return 1
