"""Options of an agent, which its parts share."""

from typing import Any

from foretrace._engine.data import Data
from foretrace._engine.gradient import Evaluation, Loss, evaluate
from foretrace._network import AbstractNetwork
from foretrace._recurrence.chunk import Carry
from foretrace._rule import LearningRule
from foretrace.rl._method import Method
from foretrace.rl._update import Update


class Options:
    """Options of an agent (documented in `Agent`), and its gradient."""

    network: Any
    method: Method
    rule: LearningRule
    batch_size: int | None
    discount: float
    trace_decay: float
    optimizer: Update
    normalize_observations: bool
    scale_rewards: bool

    def _gradient(
        self, network: AbstractNetwork, carry: Carry, data: Data, loss: Loss
    ) -> Evaluation:
        """Return outputs, gradient of a loss and carry of one stream after one more step."""
        return evaluate(network, carry, data, rule=self.rule, loss=loss)
