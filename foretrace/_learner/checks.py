"""Checks of a learner's options, states and data."""

import warnings
from functools import partial
from typing import Any

import jax
import numpy as np

from foretrace._cells.parts import check_sizes, is_key
from foretrace._credit.table import check_rule
from foretrace._engine.checks import check_chunk, check_finite, check_labels, check_loss
from foretrace._engine.untrained import untrained_parameters
from foretrace._learner.kalman import Kalman
from foretrace._learner.measurement import measurement_of
from foretrace._learner.options import Options
from foretrace._learner.state import LearnerState, UntrainedParameters
from foretrace._network import AbstractNetwork, check_network
from foretrace._rule import LearningRule
from foretrace.heads import LeastSquares


def check_options(learner: Options) -> None:
    """Raise a ValueError that names the wrong option and the accepted values."""
    batch_size, mesh, rule = learner.batch_size, learner.mesh, learner.rule
    check_network("Learner", learner.network)
    if not all(callable(getattr(learner.optimizer, name, None)) for name in ("init", "update")):
        raise TypeError(
            f"Learner(optimizer={learner.optimizer!r:.80}) must be an Optax optimiser, such as "
            "ft.adamw(1e-3), or ft.kalman()"
        )
    if not isinstance(learner.head, LeastSquares | None):
        raise TypeError(
            f"Learner(head={learner.head!r:.80}) must be a head, such as ft.heads.least_squares(), "
            "or None for the network's decoder"
        )
    check_loss(learner.loss)
    if learner.learns_rows:
        _check_rows(learner)
    segment = learner.segment
    if learner.accumulate and learner.whole_sequences:
        raise ValueError(
            "accumulate=True sums over the calls of a sequence; whole_sequences=True has only one"
        )
    needs_all_steps = rule.credit is not None or learner.network.cumulative_mean
    if segment is not None and (segment < 1 or not learner.whole_sequences or needs_all_steps):
        raise ValueError(
            f"Learner(segment={segment}) must be at least 1, and is for whole_sequences=True, "
            "rules without credit in depth and networks without a cumulative mean"
        )
    if learner.mean_loss and learner.accumulate:
        raise ValueError(
            "mean_loss=True divides by the steps of one call; with accumulate=True the sequence "
            "has several calls: divide its weights (mask) by their sum yourself"
        )
    check_sizes("Learner", batch_size=1 if batch_size is None else batch_size)
    if mesh is not None and (
        len(mesh.axis_names) != 1 or batch_size is None or batch_size % mesh.size
    ):
        raise ValueError(
            f"Learner(mesh={mesh}) must have one axis of devices that share "
            f"batch_size={batch_size} evenly"
        )
    check_rule(learner.network, rule, whole_sequences=learner.whole_sequences)


def warn_of_untrained(network: AbstractNetwork, rule: LearningRule) -> None:
    """Warn of parameters that receive no gradient under a rule, at the line of the caller."""
    if names := untrained_parameters(network, rule):
        warnings.warn(
            f"under {rule} the gradient of {', '.join(names)} is structurally zero: these "
            "parameters stay as they are (warn=False silences this)",
            UntrainedParameters,
            stacklevel=3,
        )


def _check_rows(learner: Options) -> None:
    """Raise a ValueError if an option has no effect in learning row by row."""
    owner = "ft.kalman" if isinstance(learner.optimizer, Kalman) else "a head by least squares"
    for name in ("accumulate", "whole_sequences", "mean_loss", "mesh"):
        if getattr(learner, name) not in (None, False):
            raise ValueError(
                f"Learner({name}=…) does not go with {owner}, which learns from every row: leave "
                "it out"
            )
    measurement_of(learner.loss)
    if learner.rule.samples:
        raise ValueError(
            f"{owner} needs a rule that carries all of its sensitivities, and {learner.rule} "
            "samples them"
        )
    if jax.eval_shape(learner.network.dropout_masks, jax.random.key(0)) is not None:
        raise ValueError(
            f"{owner} needs predictions without noise: make the network with dropout=0"
        )


def _check_weights(mask: Any) -> None:
    """Raise a ValueError for a negative weight. Traced arrays are accepted."""
    if isinstance(mask, jax.core.Tracer):
        return
    negative = np.argwhere(np.asarray(mask, np.float64) < 0)
    if negative.size:
        where = tuple(map(int, negative[0]))
        raise ValueError(
            f"mask holds {np.asarray(mask)[where]} at {where}, expected weights of at least 0"
        )


def check_call(
    learner: Options, state: Any, x: Any, y: Any, mask: Any, reset: Any, *, last: bool = False
) -> None:
    """Raise an error that names the fault in the state or the data of a call."""
    if last and not learner.whole_sequences:
        raise ValueError(
            "step(last=True) is for sequences with one target: make the learner with "
            "whole_sequences=True"
        )
    if not isinstance(state, LearnerState):
        raise TypeError(
            f"state is a {type(state).__name__}, expected what init() or the previous call returned"
        )
    check_chunk(learner.network, x, y, mask, reset, last=last)
    if y is not None:
        check_labels(learner.network, learner.loss, x, y, mask, last=last)
    check_finite("y", y)
    streams = np.shape(x)[0] if np.ndim(x) == 3 else None
    if streams != learner.batch_size and not learner.whole_sequences:
        raise ValueError(
            f"x has shape {np.shape(x)}: {streams or 'no'} streams in a batch, but the learner was "
            f"made with batch_size={learner.batch_size}"
        )
    if learner.learns_rows and mask is not None:
        _check_weights(mask)
    if learner.mesh is not None and (streams is None or streams % learner.mesh.size):
        raise ValueError(
            f"x has shape {np.shape(x)}: {learner.mesh.size} devices share the sequences of a "
            f"batch evenly, {learner.mesh.size} or a multiple of it"
        )


def check_state(own: LearnerState, given: LearnerState) -> None:
    """Raise a ValueError that names the first part of a state that does not fit the learner.

    This check runs while a program is traced, once for each shape, so a call does not pay for it.
    """
    ours, theirs = _kinds(own), _kinds(given)
    wrong = [
        f".{name} is {theirs.get(name, 'missing')}, expected {ours.get(name, 'nothing there')}"
        for name in ours | theirs
        if ours.get(name) != theirs.get(name)
    ]
    if not wrong and jax.tree.structure(own) != jax.tree.structure(given):
        wrong = [" has the right arrays, but was made with other options"]
    if wrong:
        raise ValueError(
            f"state{wrong[0]}: it is not a state of this learner; use one that its own init(), "
            "step() or ft.load(path, learner) returned"
        )


def _kinds(state: LearnerState) -> dict[str, str]:
    """Return dtype and shape of each array by name; all kinds of PRNG keys count as equal."""
    name = partial(jax.tree_util.keystr, simple=True, separator=".")
    return {
        name(path): f"{'key' if is_key(leaf) else leaf.dtype}{list(leaf.shape)}"
        for path, leaf in jax.tree.leaves_with_path(state)
    }
