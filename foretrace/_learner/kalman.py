"""A second-order step for networks of modules: the node-decoupled extended Kalman filter.

An Optax optimiser uses the gradient of the loss. This optimiser uses the Jacobian of every
prediction, under the same rule and from the same sensitivities. A node is a module, or outside of
recurrent layers a unit (`foretrace._learner.nodes`).

Source: Puskorius and Feldkamp, Decoupled extended Kalman filter training of feedforward layered
    networks, IJCNN 1991; Neurocontrol of nonlinear dynamical systems with Kalman filter trained
    recurrent networks, 1994; for streams side by side: Feldkamp and Puskorius, Training controllers
    for robustness: multi-stream DEKF, 1994.
"""

import dataclasses
from typing import Any, NamedTuple

import jax.numpy as jnp

from foretrace._cells.parts import check_numbers
from foretrace._covariance import inverse_root, reduced
from foretrace._learner.error_moments import Errors, repetition, variance
from foretrace._types import Array, Bool, Float


class KalmanState(NamedTuple):
    """Covariances of the parameters of every node, one array for each group of nodes."""

    covariances: tuple[Float[Array, "M p p"], ...]


@dataclasses.dataclass(frozen=True)
class Kalman:
    """Second-order step with one small covariance for each node: `optimizer=ft.kalman()`.

        A = (measurement_noise + g) R v I + sum_i J_i U_i J_i^T
        delta_i = U_i J_i^T A^-1 e
        U_i <- U_i - U_i J_i^T A^-1 J_i U_i + diag(min(process_noise / v, prior - diag(U_i)))
        v = (1 + rho) / (1 - rho) (1 + delay)
        h <- h + clip(S delta, state_correction)

    J_i is the Jacobian of all predictions with respect to the parameters of node i. e are the
    errors, clipped at three times the root of their mean square R. rho is the correlation of an
    error with the previous error. g is the relative variance of the head's prediction. Without a
    head, the parameters of the decoder are nodes, and g is zero. S is the sensitivity of the state
    to the parameters. All nodes share the errors and A.

    The rule of the learner determines which sensitivities J contains. Under `ONLINE` they are exact
    in the top layer of independent modules, and the layers below receive the error of the present
    step. Every row is a separate step, so a chunk gives the same result as its rows one by one. In
    a batch, the rows of all streams are one step, which has one error for each row.

    For numbers, the loss is `squared_error`. For classes, it is `softmax_cross_entropy`, and the
    predictions are the probabilities, or the scores of `ft.heads.least_squares`.

    The covariances are exactly symmetric, and no variance exceeds the prior. They therefore stay
    bounded for any number of labels.

    Args:
        prior: variance of every parameter before the first label, and its upper limit later.
        process_noise: variance that is added at every label, so that learning never stops.
        measurement_noise: fraction of the mean square error that counts as noise.
        state_correction: largest change of a state after an update, which makes the state agree
            with the new parameters at once. It needs a rule that carries sensitivities. None for no
            correction.
        autocorrelation: whether labels get a smaller weight while successive errors are correlated.
        delay: number of rows by which labels are late. The errors of these rows overlap.
        warmup: number of labels before the parameters learn. Until then, only a least-squares head
            learns.

    Raises:
        ValueError: a number is out of range.

    >>> import foretrace as ft, jax, jax.numpy as jnp
    >>> cells = (ft.SetReset.factory(state_size=4),)
    >>> network = ft.ModuleNetwork(2, 1, cells=cells, key=jax.random.key(0))
    >>> learner = ft.Learner(
    ...     network,
    ...     rule=ft.ONLINE,
    ...     optimizer=ft.kalman(),
    ...     head=ft.heads.least_squares(),
    ...     loss=ft.losses.squared_error,
    ... )
    >>> state, info = learner.step(learner.init(), jnp.ones((3, 2)), jnp.ones((3, 1)))
    >>> info.outputs.shape
    (3, 1)
    """

    prior: float = 10.0
    process_noise: float = 3e-4
    measurement_noise: float = 0.3
    state_correction: float | None = 0.5
    autocorrelation: bool = True
    delay: int = 0
    warmup: int = 49

    def __post_init__(self) -> None:
        check_numbers("kalman", prior=self.prior, measurement_noise=self.measurement_noise)
        for name in ("process_noise", "delay", "warmup"):
            check_numbers("kalman", allow_zero=True, **{name: getattr(self, name)})
        if self.state_correction is not None and not self.state_correction > 0:
            raise ValueError(
                f"kalman(state_correction={self.state_correction}) must be positive, or None for "
                "no correction"
            )

    def init(self, nodes: list[Float[Array, "M p"]]) -> KalmanState:
        """Return the state before the first label, for the parameters of each group of nodes."""
        units = (self.prior * jnp.eye(group.shape[1], dtype=group.dtype) for group in nodes)
        each = zip(units, nodes, strict=True)
        return KalmanState(tuple(jnp.tile(unit, (len(group), 1, 1)) for unit, group in each))

    def update(
        self,
        state: KalmanState,
        jacobians: list[Float[Array, "R M p"]],
        found: Float[Array, "B O"],
        errors: Errors,
        head_variance: Float[Array, "B B"],
        known: Bool[Array, "B"],
        late: Any = 0.0,
    ) -> tuple[list[Float[Array, "M p"]], KalmanState]:
        """Return the update of every node's parameters, and the state after it.

        Args:
            state: covariances before the step.
            jacobians: derivative of each prediction (streams times outputs), for each group of
                nodes. Zero for a stream without a label.
            found: errors of the predictions; zero for a stream without a label.
            errors: moments of all errors, including this step.
            head_variance: relative variance of the head's predictions.
            known: whether each stream has a label.
            late: number of rows by which this label is late, in addition to `delay`.
        """
        streams, outputs = found.shape
        active = known.any() & (errors.num_labels > self.warmup)
        repeated = repetition(errors.mean_square, errors.lagged) if self.autocorrelation else 1.0
        v = repeated * (1.0 + self.delay + late)
        noise = (self.measurement_noise * jnp.eye(streams, dtype=found.dtype) + head_variance) * (
            variance(errors) * v
        )
        A = jnp.kron(noise, jnp.eye(outputs, dtype=found.dtype))
        # Rows are predictions, and columns are all parameters, node by node, for few large
        # products.
        J, moved = _joined(jacobians), []
        for U, own in zip(state.covariances, jacobians, strict=True):
            # U is symmetric, and J U is several times faster than U J^T.
            product = jnp.moveaxis(jnp.moveaxis(own, 0, 1) @ U, 1, 0)
            # Rounding may leave no positive variance along J. The node then waits for new noise.
            sane = ((own * product).sum(axis=2) >= 0).all(axis=0)
            moved.append(product * (sane & active).astype(found.dtype)[None, :, None])
        together = _joined(moved)
        root = inverse_root(A + J @ together.T)
        Y = root @ together
        change, more = (root @ found.reshape(-1)) @ Y, self.process_noise / v
        changes, covariances, at = [], [], 0
        for U in state.covariances:
            shape, first, at = U.shape[:2], at, at + U[..., 0].size
            changes.append(change[first:at].reshape(shape))
            rows = jnp.moveaxis(Y[:, first:at].reshape(-1, *shape), 0, -1)
            covariances.append(reduced(U, rows, more=more, largest=self.prior, known=active))
        return changes, KalmanState(tuple(covariances))


def _joined(groups: list[Float[Array, "R M p"]]) -> Float[Array, "R P"]:
    return jnp.concatenate([group.reshape(len(group), -1) for group in groups], axis=1)


kalman = Kalman
"""Second-order step: `Learner(..., optimizer=ft.kalman())`."""
