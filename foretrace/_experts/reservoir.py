"""A memory without training: time constants of 2 to 500 rows, and least squares."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from foretrace._cells.rotation import Rotation
from foretrace._cells.set_reset import SetReset
from foretrace._engine.carry import init_carry
from foretrace._engine.data import Data
from foretrace._engine.forward import run
from foretrace._experts.expert import AbstractRecurrentExpert, Features
from foretrace._experts.readout import Readout, ReadoutState, fits
from foretrace._experts.shape import Shape
from foretrace._modules import ModuleNetwork
from foretrace._recurrence.chunk import Carry
from foretrace._rule import RESERVOIR
from foretrace._types import Array, Bool, Float

CELLS = (SetReset.factory(state_size=16), Rotation.factory(state_size=32))


class Reservoir(AbstractRecurrentExpert):
    """One expert: least squares on the row and on the outputs of frozen modules.

    Args:
        network: the modules; it has no use for a decoder.
        readout: least squares on inputs and outputs.
    """

    network: Any
    readout: Readout

    @property
    def names(self) -> tuple[str, ...]:
        """Name of the expert."""
        return ("reservoir",)

    def init(self) -> ReadoutState:
        """Return the state before the first row."""
        return self.readout.init(self.network.feature_size)

    def new_carry(self) -> Carry:
        """Return the states before the first row."""
        return init_carry(jax.tree.map(jnp.asarray, self.network), RESERVOIR)

    def predict(self, state: ReadoutState, carry: Carry, features: Features) -> Float[Array, "E O"]:
        """Return the prediction of a row."""
        return self.readout.predict(state, self._pass(carry, features)[0], features)

    def move(self, state: ReadoutState, carry: Carry, features: Features) -> Carry:
        """Return the states behind a row."""
        return self._pass(carry, features)[1]

    def learn(
        self,
        state: ReadoutState,
        carry: Carry,
        ahead: Carry | None,
        features: Features,
        label: Float[Array, "O"],
        known: Bool[Array, ""],
    ) -> tuple[ReadoutState, Carry, Carry | None]:
        """Return the state after a label, and both carries."""
        f, after = self._pass(carry, features)
        error = self.readout.error(
            state, self.readout.head.scores(state.head, f), features, label, known
        )
        new = self.readout.learn(
            state, f, error, self.readout.noted(state, error, features, known), known
        )
        accepted = jnp.isfinite(new.head.weights).all()
        return optax.tree.where(accepted, new, state), after, ahead

    def _pass(self, carry: Carry, features: Features) -> tuple[Float[Array, "F"], Carry]:
        x = features.now.astype(jnp.float32)
        network = jax.tree.map(jnp.asarray, self.network)
        f, after = run(network, carry, Data(x[None]), rule=RESERVOIR, readout=lambda f: f)
        assert after is not None
        return f[0], after


def reservoir(shape: Shape) -> Reservoir | None:
    """Return the expert of a shape; None if it would be too large."""
    if not fits(shape):
        return None
    with jax.enable_x64(False):
        network = ModuleNetwork(shape.now_size, 1, cells=CELLS, key=jax.random.key(1))
        network = jax.tree.map(np.asarray, network)
    return Reservoir(network, Readout(shape.outputs, shape.classes))
