"""Experts with a `Learner`: a network that is trained while the stream runs.

A late label is learned from the states and sensitivities of its row, corrected to first order as if
the present parameters had computed them: h + clip(S theta - S theta_row, `late`). For this, a
waiting row stores S theta_row, which is as small as h, instead of theta_row. Two alternatives were
no better: states of the row without this correction, and states that follow the row with the
present parameters.
"""

from typing import Any

import equinox as eqx
import jax

from foretrace._engine.correction import Kept
from foretrace._learner.learner import Learner
from foretrace._recurrence.chunk import Carry
from foretrace.stream.experts.answer import Answer
from foretrace.stream.experts.expert import AbstractExpert
from foretrace.stream.experts.settings import TUNED


class Modules(AbstractExpert):
    """One expert with a network; each stream has a separate carry.

    Args:
        learner: learner of one unbatched stream, which learns at each step with a label.
        answer: kind of the targets.
        x64: whether the learner is in float64.
    """

    learner: Learner = eqx.field(static=True)
    answer: Answer
    x64: bool = eqx.field(static=True)

    def fresh_carry(self, network: Any, key: Any) -> Carry:
        """Return states and sensitivities before the first row.

        Args:
            network: network with its present parameters.
            key: key of the learner's state; None for a rule that does not sample.
        """
        with jax.enable_x64(self.x64):
            # A rule that samples needs another key for each start. The learner's key changes with
            # every step.
            first = jax.random.fold_in(key, 2) if self.learner.rule.samples else None
            return self.learner.init_carry(network, None, first)

    def memo(self, network: Any, carry: Carry, *, waits: bool) -> Carry | Kept:
        """Return the carry before a row, in the form that a label needs, which may be late."""
        return Kept.of(network, carry) if waits else carry

    def carry_of_row(self, network: Any, memo: Carry | Kept) -> Carry:
        """Return the carry before the row of a label, with states of the present network."""
        return memo.now(network, TUNED.late) if isinstance(memo, Kept) else memo
