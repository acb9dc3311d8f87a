"""Options of a learner, which its parts share."""

from typing import Any

from jax.sharding import Mesh

from foretrace._credit.table import advances_in_place, reaches_encoder
from foretrace._engine.gradient import Loss
from foretrace._learner.kalman import Kalman
from foretrace._network import AbstractNetwork
from foretrace._rule import LearningRule
from foretrace.heads import LeastSquares


class Options:
    """Options of a learner, documented in `Learner`."""

    network: Any
    rule: LearningRule
    optimizer: Any
    loss: Loss
    head: LeastSquares | None
    batch_size: int | None
    mesh: Mesh | None
    mean_loss: bool
    train_encoder: bool | None
    accumulate: bool
    whole_sequences: bool
    segment: int | None

    @property
    def learns_rows(self) -> bool:
        """Whether the learner learns from each row separately."""
        return self.head is not None or isinstance(self.optimizer, Kalman)

    def trains_encoder(self, steps: int) -> bool:
        """Return whether a call of `steps` steps trains the encoder and the first norms."""
        if self.train_encoder is not None:
            return self.train_encoder
        # With one update for each sequence, the encoder's gradient is exact, as far as the rule
        # allows.
        of_sequence = self.accumulate or self.whole_sequences
        return of_sequence or reaches_encoder(self.rule, self.network.depth, steps)

    def advances_late(self, network: AbstractNetwork, steps: int) -> bool:
        """Return whether sensitivities are updated in place, after a call is accepted."""
        return self.mesh is None and advances_in_place(network, self.rule, steps)
