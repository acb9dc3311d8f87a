"""A memory that is learned: modules that write, hold and turn, trained by the second-order step.

    f = [x, emitted by the modules],  prediction = head(f)
    W, P  <- recursive least squares on f           the head (`foretrace.heads`)
    theta <- theta + Kalman gain * error            each module (`foretrace._learner.kalman`)

The sensitivities of the modules to their parameters are exact. Everything is computed in float32.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from foretrace._cells.rotation import Rotation
from foretrace._cells.set_reset import SetReset
from foretrace._engine.carry import init_carry
from foretrace._engine.correction import corrected
from foretrace._engine.data import Data
from foretrace._engine.forward import run
from foretrace._experts.answer import answer_of
from foretrace._experts.expert import AbstractExpert, Features, Lesson, Remembered
from foretrace._experts.readout import Readout, ReadoutState, fits
from foretrace._experts.shape import Shape
from foretrace._learner.kalman import Kalman, KalmanState
from foretrace._learner.nodes import NodeGroup, gathered, node_groups, scattered
from foretrace._modules import ModuleNetwork
from foretrace._recurrence.chunk import Carry
from foretrace._rule import ONLINE
from foretrace._types import Array, Bool, Float

MANY_INPUTS = 16
"""Number of inputs above which the modules are `FEWER`.

The time of a label grows with the number of modules and with the square of the inputs.
"""

FEWER = (SetReset.factory(state_size=8), Rotation.factory(state_size=4))
"""Half as many modules as a `ModuleNetwork` has by default."""

_STEERING = 4
"""Number of classes, the first ones, whose errors train the modules; the head learns all."""


class MemoryState(NamedTuple):
    """Learned state.

    Args:
        network: parameters of the modules.
        covariances: covariance of the parameters of each module.
        readout: least squares on inputs and outputs of the modules.
    """

    network: Any
    covariances: KalmanState
    readout: ReadoutState


class Memory(AbstractExpert):
    """One expert: modules that are trained while the stream runs.

    Args:
        network: modules as they begin; it has no use for a decoder.
        readout: least squares on inputs and outputs of all modules.
        delay: number of rows after which a label comes.
    """

    network: Any
    readout: Readout
    delay: int = eqx.field(static=True)

    @property
    def names(self) -> tuple[str, ...]:
        """Name of the expert."""
        return ("memory",)

    @property
    def nodes(self) -> tuple[NodeGroup, ...]:
        """The modules: parameters that share a covariance."""
        held = jax.tree.map(lambda _: False, self.network)
        closed = jax.tree.map(lambda _: True, self.network.decoder)
        return node_groups(self.network, eqx.tree_at(lambda n: n.decoder, held, closed))

    def init(self) -> MemoryState:
        """Return the state before the first row."""
        network = jax.tree.map(jnp.asarray, self.network)
        covariances = self._filter().init(gathered(self.nodes, network))
        return MemoryState(network, covariances, self.readout.init(network.feature_size))

    def new_carry(self, learned: MemoryState) -> Carry:
        """Return states and sensitivities before the first row."""
        return init_carry(jax.tree.map(jnp.asarray, self.network), ONLINE)

    def predict(self, state: Remembered, features: Features) -> Float[Array, "E O"]:
        """Return the prediction of a row."""
        learned = state.learned
        f, _ = self._pass(learned.network, state.carry, features)
        return self.readout.predict(learned.readout, f, features)

    def move(self, state: Remembered, features: Features, has_row: Bool[Array, ""]) -> Carry:
        """Return states and sensitivities after a row."""
        _, after = self._pass(state.learned.network, state.carry, features)
        return optax.tree.where(has_row, after, state.carry)

    def learn(self, state: Remembered, lesson: Lesson) -> Remembered:
        """Return the state after a label, and the carry after its row."""
        now, carry, features = state.learned, state.carry, lesson.features
        head = self.readout.head
        outputs = self.readout.answer.outputs
        steering = min(outputs, _STEERING) if self.readout.classes else outputs

        def predicted(network: Any) -> tuple[Array, Any]:
            f, after = self._pass(network, carry, features)
            scores = head.scores(now.readout.head, f)
            return scores[:steering], jax.lax.stop_gradient((f, scores, after))

        first, pull, (f, scores, after) = jax.vjp(predicted, now.network, has_aux=True)
        (jacobian,) = jax.vmap(pull)(jnp.eye(steering, dtype=first.dtype))
        nodes = gathered(self.nodes, jacobian, axes=1)
        # Asked before the step: choosing between the states after it costs as much as the step.
        sums = [jnp.sum(leaf) for leaf in (*nodes, f, scores)]
        is_sound = jnp.isfinite(jnp.stack(sums)).all()
        nodes, f = optax.tree.where(is_sound, (nodes, f), jax.tree.map(jnp.zeros_like, (nodes, f)))
        lesson = lesson._replace(known=lesson.known & is_sound)
        error = self.readout.error(now.readout, scores, lesson)
        errors = self.readout.noted(now.readout, error, lesson)
        spread = head.variance(now.readout.head, f[None])
        changes, covariances = self._filter().update(
            now.covariances, nodes, error[:, :steering], errors, spread, lesson.known[None]
        )
        change = scattered(self.nodes, changes, now.network)
        limit = self._filter().state_correction
        assert limit is not None

        def moved(carry: Carry) -> Carry:
            found = corrected(now.network, change, carry, limit, batched=False)
            return carry._replace(h=optax.tree.where(is_sound, found.h, carry.h))

        readout = self.readout.learn(now.readout, f, error, errors, lesson.known)
        network = jax.tree.map(jnp.add, now.network, change)
        return Remembered(
            MemoryState(network, covariances, readout),
            optax.tree.where(lesson.has_row, moved(after), carry),
            None if state.ahead is None else moved(state.ahead),
        )

    def _pass(
        self, network: Any, carry: Carry, features: Features
    ) -> tuple[Float[Array, "F"], Carry]:
        """Return inputs and outputs of the modules at a row, and the carry after it."""
        x = features.now.astype(jnp.float32)
        f, after = run(network, carry, Data(x[None]), rule=ONLINE, readout=lambda f: f)
        assert after is not None
        return f[0], after

    def _filter(self) -> Kalman:
        return Kalman(delay=self.delay)


def memory(shape: Shape) -> Memory | None:
    """Return the expert for rows of this shape; None if it would be too large."""
    if not fits(shape):
        return None
    cells = None if shape.now_size <= MANY_INPUTS else FEWER
    with jax.enable_x64(False):
        network = ModuleNetwork(shape.now_size, 1, cells=cells, key=jax.random.key(0))
        network = jax.tree.map(np.asarray, network)
    return Memory(network, Readout(answer_of(shape)), shape.delay)
