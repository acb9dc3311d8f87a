"""Train a network on arrays, with shuffled batches, validation and early stopping."""

import math
import warnings
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from foretrace._cells.parts import check_sizes
from foretrace._engine.checks import check_chunk
from foretrace._engine.data import Data, weighted
from foretrace._engine.gradient import Loss, chunk_loss
from foretrace._learner.learner import Learner
from foretrace._learner.optimizer import adamw
from foretrace._network import Network
from foretrace._rule import LearningRule
from foretrace._types import Array, Float, PRNGKeyArray


class Fit(NamedTuple):
    """Result of `fit`.

    Args:
        network: network after the epoch with the lowest validation loss; without validation, after
            the last epoch.
        losses: for each epoch, the mean training loss of the accepted updates.
        validation_losses: validation loss after each epoch; empty without validation.
    """

    network: Network
    losses: list[float]
    validation_losses: list[float]


def fit(
    network: Network,
    xs: Float[Array, "S T I"],
    ys: Array,
    *,
    loss: Loss,
    rule: LearningRule | str = "BPTT",
    optimizer: optax.GradientTransformation | None = None,
    mask: Array | None = None,
    last: bool | None = None,
    epochs: int = 20,
    batch_size: int = 32,
    validation: float = 0.1,
    patience: int | None = None,
    progress: bool = True,
    key: PRNGKeyArray,
) -> Fit:
    """Train a network on sequences of equal length; pad and mask shorter sequences.

    The loss of a sequence is the mean over the steps that count, so no weights are needed.

    Args:
        network: initial network.
        xs: inputs of S sequences of T steps.
        ys: targets of every step, (S, T, …), or one target for each sequence, (S, …). One target is
            compared with the output of the last step that counts.
        loss: loss of one step, `loss(output, y)`.
        rule: learning rule or its name. Default: backpropagation through time. On whole sequences
            it is exact and costs as much as the online rule.
        optimizer: Optax optimiser. Default: `adamw(1e-3)`.
        mask: booleans (S, T) that say whether each step counts. Default: all steps count.
        last: whether there is one target for each sequence. Default: false if the second axis of
            `ys` has T elements, and the loss takes an output and a target of a step.
        epochs: maximum number of passes over the training sequences.
        batch_size: number of sequences in one update.
        validation: fraction of the sequences that is held out, at least one sequence; 0 for none.
        patience: number of epochs without a lower validation loss after which training stops.
            Default: no early stopping.
        progress: whether to show a progress bar.
        key: PRNG key of the split, of the order of the sequences and of the dropout masks.

    Raises:
        TypeError: xs are not floating-point numbers, or ys are not numbers.
        ValueError: the shapes do not fit, a number is out of range, patience is given without
            validation, a validation loss is not finite, or every update of an epoch was refused.

    Warns:
        RuntimeWarning: some updates of an epoch were refused because loss, gradient or update was
            NaN or infinite.

    >>> import foretrace as ft, jax, jax.numpy as jnp
    >>> xs = jax.random.normal(jax.random.key(0), (20, 5, 1))
    >>> network = ft.Network(
    ...     1, 1, model_size=4, depth=1, cell=ft.MinGRU.factory(), key=jax.random.key(1)
    ... )
    >>> found = ft.fit(
    ...     network,
    ...     xs,
    ...     xs,
    ...     loss=ft.losses.squared_error,
    ...     epochs=3,
    ...     key=jax.random.key(2),
    ...     progress=False,
    ... )
    >>> len(found.losses), len(found.validation_losses)
    (3, 3)
    """
    xs, ys = _numbers("xs", xs), _numbers("ys", ys)
    check_sizes("fit", epochs=epochs, batch_size=batch_size)
    _check(xs, ys, validation, patience)
    mask = None if mask is None else jnp.asarray(mask, bool)
    if last is None:
        last = ys.ndim < 2 or ys.shape[1] != xs.shape[1] or not _takes(loss, network, ys[0, 0])
    check_chunk(network, xs, ys, mask, last=last)
    from tqdm import trange

    split, order, masks = jax.random.split(key, 3)
    shuffled = np.asarray(jax.random.permutation(split, len(xs)))
    held = min(max(1, round(validation * len(xs))), len(xs) - 1) if validation else 0
    test, train = shuffled[:held], shuffled[held:]
    optimizer = adamw() if optimizer is None else optimizer
    learner = Learner(
        network, rule=rule, loss=loss, optimizer=optimizer, whole_sequences=True, mean_loss=True
    )
    score = jax.jit(partial(_mean_loss, rule=learner.rule, loss=loss, last=last))
    sequences = Data(xs, ys, mask)
    state, best, losses, scores = learner.init(masks), network, [], []
    size = min(batch_size, len(train))
    for epoch in trange(epochs, desc="epochs", disable=not progress):
        mixed = np.asarray(jax.random.permutation(jax.random.fold_in(order, epoch), len(train)))
        # The last batch is filled up from the first, so that all batches have the same shape.
        rows = np.resize(train[mixed], -(-len(train) // size) * size)
        infos = []
        for batch in np.split(rows, len(rows) // size):
            data = _chosen(sequences, batch)
            state, info = learner.step(state, data.xs, data.ys, mask=data.mask, last=last)
            infos.append((info.loss, info.accepted))
        losses.append(_mean_accepted(infos, epoch + 1))
        if not held:
            best = state.network
            continue
        scores.append(float(score(state.network, _chosen(sequences, test))))
        if not math.isfinite(scores[-1]):
            raise ValueError(
                f"fit: the validation loss of epoch {epoch + 1} is {scores[-1]}; look for NaN, and "
                "for labels that are no class, in ys of the sequences, or try a smaller learning "
                "rate"
            )
        if scores[-1] == min(scores):
            best = state.network
        if patience is not None and epoch - int(np.argmin(scores)) >= patience:
            break
    return Fit(best, losses, scores)


def _takes(loss: Loss, network: Network, y: Array) -> bool:
    """Return whether a loss takes an output of the network and a target."""
    output = jax.ShapeDtypeStruct((network.output_size,), network.dtype)
    try:
        jax.eval_shape(loss, output, y)
    except (TypeError, ValueError):
        return False
    return True


def _mean_accepted(infos: list[tuple[Array, Array]], epoch: int) -> float:
    """Return the mean loss of an epoch's accepted updates; warn if updates were refused."""
    losses = [float(loss) for loss, accepted in jax.device_get(infos) if accepted]
    refused = (
        f"fit: {len(infos) - len(losses)} of {len(infos)} updates of epoch {epoch} were refused, "
        "because loss, gradient or update was NaN or infinite; look for values that are far too "
        "large, scale xs and ys, or try a smaller learning rate"
    )
    if not losses:
        raise ValueError(refused)
    if len(losses) < len(infos):
        warnings.warn(refused, RuntimeWarning, stacklevel=3)
    return float(np.mean(losses))


def _mean_loss(
    network: Network, data: Data, *, rule: LearningRule, loss: Loss, last: bool
) -> Array:
    data = weighted(data, mean_loss=True, last=last)
    return chunk_loss(network, None, data, rule=rule, loss=loss, return_carry=False)[0]


def _chosen(sequences: Data, rows: np.ndarray) -> Any:
    return jax.tree.map(lambda leaf: leaf[rows], sequences)


def _numbers(name: str, values: Any) -> Array:
    try:
        return jnp.asarray(values)
    except TypeError as error:
        raise TypeError(
            f"fit: {name} is a {type(values).__name__} whose values are not all numbers, expected "
            "an array; the rows of a table are learned by foretrace stream, or by "
            "ft.stream.Classifier and Regressor"
        ) from error


def _check(xs: Array, ys: Array, validation: float, patience: int | None) -> None:
    if xs.ndim != 3 or ys.ndim < 1 or len(xs) != len(ys):
        raise ValueError(
            f"fit: xs has shape {xs.shape} and ys {ys.shape}, expected (S, T, I) and (S, T, …) or "
            "(S, …) with as many sequences S; the rows of one table are a stream, for ft.Learner "
            "or ft.stream"
        )
    if not 0 <= validation < 1 or (validation and len(xs) < 2):
        raise ValueError(
            f"fit(validation={validation}) must lie in [0, 1), and leave sequences of {len(xs)} to "
            "train on"
        )
    check_sizes("fit", patience=1 if patience is None else patience)
    if patience is not None and not validation:
        raise ValueError(
            "fit(patience=…) needs a validation loss: set validation to a share such as 0.1"
        )
