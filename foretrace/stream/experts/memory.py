"""A memory that is learned: modules that write, hold and turn, trained by the second-order step.

    f = [x, emitted by the modules],  prediction = head(f)
    W, P  <- recursive least squares on f           the head (`foretrace.heads`)
    theta <- theta + Kalman gain * error            each module (`foretrace._learner.kalman`)

The sensitivities of the modules to their parameters are exact. Everything is computed in float32.

A late label is learned from states and sensitivities of its row, as the present parameters would
have left them, to first order: h + clip(S (theta - theta_row), `LATE`). States of a row without
this correction, and states that follow the row with the present parameters, were no better.
"""

from typing import Any, NamedTuple, Self

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
from foretrace._learner.kalman import Kalman, KalmanState
from foretrace._learner.nodes import NodeGroup, gathered, node_groups, scattered
from foretrace._modules import ModuleNetwork
from foretrace._recurrence.chunk import Carry
from foretrace._rule import ONLINE
from foretrace._types import Array, Bool, Float
from foretrace.stream.experts.answer import answer_of
from foretrace.stream.experts.expert import LATE, AbstractExpert, Features, Lesson
from foretrace.stream.experts.readout import Readout, ReadoutState, fits
from foretrace.stream.experts.shape import Shape

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
    """

    network: Any
    readout: Readout

    @classmethod
    def of(cls, shape: Shape) -> Self | None:
        """Return the expert of a shape; None if it would be too large."""
        if not fits(shape):
            return None
        cells = None if shape.now_size <= MANY_INPUTS else FEWER
        with jax.enable_x64(False):
            network = ModuleNetwork(shape.now_size, 1, cells=cells, key=jax.random.key(0))
            network = jax.tree.map(np.asarray, network)
        return cls(network, Readout(answer_of(shape)))

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

    def take(
        self,
        learned: MemoryState,
        carry: Carry,
        features: Features,
        has_row: Bool[Array, ""],
        *,
        waits: bool,
    ) -> tuple[Float[Array, "E O"], Carry, Any]:
        """Return the prediction of a row, the carry after it, and the carry before it.

        A row that waits keeps the parameters together with the carry before it.
        """
        f, after = self._pass(learned.network, carry, features)
        found = self.readout.predict(learned.readout, f, features)
        parameters = gathered(self.nodes, learned.network) if waits else None
        return found, optax.tree.where(has_row, after, carry), (carry, parameters)

    def label(
        self, learned: MemoryState, carry: Carry, memo: Any, lesson: Lesson
    ) -> tuple[MemoryState, Carry]:
        """Return what is learned after a label, and the carry."""
        now, features, head = learned, lesson.features, self.readout.head
        before, parameters = memo
        if parameters is not None:
            pairs = zip(gathered(self.nodes, now.network), parameters, strict=True)
            since = scattered(self.nodes, [new - old for new, old in pairs], now.network)
            before = corrected(now.network, since, before, LATE, batched=False)
        outputs = self.readout.answer.outputs
        steering = min(outputs, _STEERING) if self.readout.classes else outputs

        def predicted(network: Any) -> tuple[Array, Any]:
            f, _ = self._pass(network, before, features)
            scores = head.scores(now.readout.head, f)
            return scores[:steering], jax.lax.stop_gradient((f, scores))

        first, pull, (f, scores) = jax.vjp(predicted, now.network, has_aux=True)
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
        late = 0.0 if lesson.late is None else jnp.asarray(lesson.late, f.dtype)
        given = error[:, :steering], errors, spread, lesson.known[None], late
        changes, covariances = self._filter().update(now.covariances, nodes, *given)
        change = scattered(self.nodes, changes, now.network)
        limit = self._filter().state_correction
        assert limit is not None
        moved = corrected(now.network, change, carry, limit, batched=False)
        is_moved = is_sound & lesson.has_row
        carry = carry._replace(h=optax.tree.where(is_moved, moved.h, carry.h))
        readout = self.readout.learn(now.readout, f, error, errors, lesson.known)
        network = jax.tree.map(jnp.add, now.network, change)
        return MemoryState(network, covariances, readout), carry

    def _pass(
        self, network: Any, carry: Carry, features: Features
    ) -> tuple[Float[Array, "F"], Carry]:
        """Return inputs and outputs of the modules at a row, and the carry after it."""
        x = features.now.astype(jnp.float32)
        f, after = run(network, carry, Data(x[None]), rule=ONLINE, readout=lambda f: f)
        assert after is not None
        return f[0], after

    def _filter(self) -> Kalman:
        return Kalman()
