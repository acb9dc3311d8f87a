"""A learned memory: modules that store, hold and rotate values, trained by a second-order step.

    f = [x, emitted by the modules],  prediction = head(f)
   W, P  <- recursive least squares on f           the least-squares head (`foretrace.heads`)
    theta <- theta + Kalman gain * error            each module (`foretrace._learner.kalman`)

The sensitivities of the modules to their parameters are exact. Everything is computed in float32.
"""

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from foretrace._cells.rotation import Rotation
from foretrace._cells.set_reset import SetReset
from foretrace._engine.data import Data
from foretrace._learner.kalman import kalman
from foretrace._learner.learner import Learner
from foretrace._learner.rows import Rows
from foretrace._learner.state import LearnerState
from foretrace._modules import ModuleNetwork
from foretrace._recurrence.chunk import Carry
from foretrace._rule import ONLINE
from foretrace._types import Array, Bool, Float
from foretrace.losses import squared_error
from foretrace.stream.experts.answer import answer_of
from foretrace.stream.experts.expert import Features, Lesson
from foretrace.stream.experts.modules import Modules
from foretrace.stream.experts.readout import Readout, fits
from foretrace.stream.experts.settings import TUNED
from foretrace.stream.experts.shape import Shape

MANY_INPUTS = 16
"""Number of inputs above which the modules are `FEWER`.

The time of a label grows with the number of modules and with the square of the number of inputs.
"""

FEWER = (SetReset.factory(state_size=8), Rotation.factory(state_size=4))
"""Half as many modules as a `ModuleNetwork` has by default."""


class Memory(Modules):
    """One expert: modules that are trained while the stream runs, and a least-squares readout.

    Args:
        readout: least-squares readout of the inputs and the outputs of all modules.
    """

    readout: Readout

    @classmethod
    def of(cls, shape: Shape) -> Self | None:
        """Return the expert for streams of these sizes; None if it would be too large."""
        if not fits(shape):
            return None
        cells = None if shape.now_size <= MANY_INPUTS else FEWER
        readout = Readout(answer_of(shape))
        sizes = shape.now_size, readout.answer.outputs
        with jax.enable_x64(False):
            network = ModuleNetwork(*sizes, cells=cells, key=jax.random.key(0))
            # The least-squares head replaces the decoder.
            network = eqx.tree_at(lambda n: n.decoder, network, None)
            learner = Learner(
                jax.tree.map(np.asarray, network),
                rule=ONLINE,
                optimizer=kalman(),
                loss=squared_error,
                head=readout.head,
                warn=False,
            )
        return cls(learner, readout.answer, x64=False, readout=readout)

    @property
    def names(self) -> tuple[str, ...]:
        """Name of the expert."""
        return ("memory",)

    @property
    def rows(self) -> Rows:
        """The functions for learning row by row."""
        return Rows(self.learner, TUNED.steering if self.readout.classes else None)

    def init(self) -> LearnerState:
        """Return the state before the first row, without the counts of calls."""
        with jax.enable_x64(False):
            state: Any = self.learner.init()
        return state._replace(carry=None, step=None, skipped=None, key=None)

    def new_carry(self, learned: LearnerState) -> Carry:
        """Return states and sensitivities before the first row."""
        return self.fresh_carry(jax.tree.map(jnp.asarray, self.learner.network), None)

    def take(
        self,
        learned: LearnerState,
        carry: Carry,
        features: Features,
        has_row: Bool[Array, ""],
        *,
        waits: bool,
    ) -> tuple[Float[Array, "E O"], Carry, Any]:
        """Return the prediction of a row, the carry after it, and the memo for its label."""
        row = Data(features.now.astype(jnp.float32)[None])
        after, seen = self.rows.unlabelled_row(learned._replace(carry=carry), row)
        found = self.readout.predict(seen.outputs, features)
        memo = self.memo(learned.network, carry, waits=waits)
        return found, optax.tree.where(has_row, after.carry, carry), memo

    def label(
        self, learned: LearnerState, carry: Carry, memo: Any, lesson: Lesson
    ) -> tuple[LearnerState, Carry]:
        """Return the learned state after a label, and the carry."""
        now: Any = learned._replace(carry=carry)
        rows = self.rows
        before = self.carry_of_row(now.network, memo)
        x, y = (part.astype(jnp.float32) for part in (lesson.features.now, lesson.label))
        row = Data(x[None], y[None], lesson.known.astype(jnp.float32)[None])
        jacobian, passed = rows.differentiate(now.network, now.head, before, row)
        f, scores = passed.features, passed.predictions
        # Checked before the step, because choosing between states after the step costs as much as
        # the step.
        sums = [jnp.sum(leaf) for leaf in (*jax.tree.leaves(jacobian), f, scores)]
        is_sound = jnp.isfinite(jnp.stack(sums)).all()
        none = jax.tree.map(jnp.zeros_like, (jacobian, f))
        jacobian, f = optax.tree.where(is_sound, (jacobian, f), none)
        lesson = lesson._replace(known=lesson.known & is_sound)
        passed = passed._replace(
            features=f, weight=lesson.known.astype(f.dtype), after=Carry(None, None)
        )
        error = self.readout.error(now.errors, scores, lesson)
        errors = self.readout.noted(now.errors, error, lesson)
        late = 0.0 if lesson.late is None else jnp.asarray(lesson.late, f.dtype)
        now = now._replace(errors=errors)
        jacobian, passed = jax.tree.map(lambda leaf: leaf[None], (jacobian, passed))
        after: Any
        after, _ = rows.second_order(now, jacobian, passed, error[:, : rows.steering], late)
        is_moved = is_sound & lesson.has_row
        carry = carry._replace(h=optax.tree.where(is_moved, after.carry.h, carry.h))
        head = self.readout.learned(now.head, f, error, lesson.known)
        return after._replace(head=head, carry=None), carry
