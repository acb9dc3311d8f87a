"""What the river estimators share, without river: a model made at the first row, and its state."""

import dataclasses
import warnings
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import jax
import numpy as np

from foretrace._cells.parts import is_key
from foretrace._rows.delayed_labels import DelayedLabels
from foretrace._rows.encode import Encoder
from foretrace._rows.number_target import TargetMode
from foretrace._rows.target import ClassTarget, Target
from foretrace._rule import RuleName
from foretrace._runs.signals import Uninterrupted
from foretrace.experiment._cells import CellName
from foretrace.stream._intake import AbstractIntake, OneStream, State
from foretrace.stream._learner import copy_state
from foretrace.stream._member_intake import Members
from foretrace.stream._model import StreamShape, resolve
from foretrace.stream._model_config import ExpertName, ModelConfig, Size
from foretrace.stream._no_effect import NO_NETWORK, NoEffect, without_effect_on_model
from foretrace.stream._saved import first_state

Row = Mapping[Any, Any]

MEMBERS = 64
"""Maximum number of members, unless another is given."""

_DEFAULT = ModelConfig(rule="online")


def _option(name: str) -> Any:
    """Return a property that reads an option of the model."""
    return property(lambda self: getattr(self.config, name))


class OnlineEstimator:
    """Learn row by row, from one stream or from many; the model is made when the first row comes.

    Args:
        config: options of the model.
        features: number of inputs.
        previous: whether the last known target is an input; None for yes with a mixture, no for a network alone.
        member: feature that names the member of a row; None if all rows belong to one stream.
        members: maximum number of members.
        target_mode: baseline from which a number is predicted; None for classes.

    Options that have no effect are warned of.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        features: int,
        previous: bool | None,
        member: Hashable | None,
        members: int,
        target_mode: TargetMode | None = None,
    ) -> None:
        self.config = config
        self.features = features
        self.previous = previous
        self.member = member
        self.members = members
        if target_mode is not None:
            self.target_mode = target_mode
        for options in self._without_effect(target_mode):
            warnings.warn(f"{type(self).__name__}: {options}", stacklevel=3)
        self._forget()

    def _without_effect(self, target_mode: TargetMode | None) -> list[NoEffect]:
        # River sets the seed of whatever it clones, whether or not it needs one.
        config = dataclasses.replace(self.config, seed=_DEFAULT.seed)
        found = without_effect_on_model(config, _DEFAULT, classes=target_mode is None)
        if target_mode not in (None, "auto") and "network" not in self.config.expert_names():
            found.append(NoEffect(["target_mode"], NO_NETWORK))
        if self.member is None and self.members != MEMBERS:
            found.append(NoEffect(["members"], "there are no members; name their feature by member"))
        return found

    # River clones an estimator by its signature: each argument of `__init__` has an attribute of its name.
    size: Size = _option("size")
    experts: tuple[ExpertName, ...] | None = _option("experts")
    cell: CellName | None = _option("cell")
    rule: RuleName = _option("rule")
    learning_rate: float = _option("learning_rate")
    clip: float | None = _option("clip")
    train_encoder: bool | None = _option("train_encoder")
    credit_depth: int | None = _option("credit_depth")
    seed: int = _option("seed")

    def leave(self, name: Hashable) -> None:
        """Forget a member: its slot is free, and if it comes again it is a new one.

        Raises:
            KeyError: there is no member of this name.
        """
        self._members(name).labels.leave(name)

    def reset(self, name: Hashable) -> None:
        """Let a member start anew with its next row, as if it had just joined.

        Raises:
            KeyError: there is no member of this name.
        """
        self._members(name).labels.table.reset(name)

    def _new_target(self) -> Target:
        raise NotImplementedError

    def _new_labels(self, encoder: Encoder) -> DelayedLabels:
        return DelayedLabels(encoder, self._new_target(), previous=self._has_previous)

    @property
    def _has_previous(self) -> bool:
        return self.config.expert_names() != ("network",) if self.previous is None else self.previous

    def _forget(self) -> None:
        self._intake: AbstractIntake | None = None
        self._state: State | None = None

    def _begin(self, x: Row) -> tuple[AbstractIntake, State]:
        """Return intake and state; they are made at the first row."""
        if self._intake is None or self._state is None:
            self._intake = self._new_intake(x)
            self._state = first_state(self._intake.learner)
        return self._intake, self._state

    def _new_intake(self, x: Row) -> AbstractIntake:
        ignore = () if self.member is None else (self.member,)
        encoder = Encoder(width=self.features, adopt=True, ignore=ignore)
        encoder.look_at(x)  # earlier values of the numbers of the first row are features of the experts
        labels = self._new_labels(encoder)
        shape = StreamShape(
            input_size=labels.width,
            output_size=labels.target.output_size,
            classes=isinstance(labels.target, ClassTarget),
            delay=labels.total_delay,
            members=None if self.member is None else self.members,
            row_size=encoder.width,
            lagged=encoder.number_places,
            previous=labels.previous,
            used=encoder.used,
        )
        model = resolve(self.config, shape)
        if self.member is None:
            return OneStream(labels, model)
        return Members(labels, model, member=self.member, as_text=False)

    def _learn(self, x: Row, y: Any) -> np.ndarray:
        """Learn from a row; return the outputs for it. Ctrl-C waits until the row is learned."""
        _check_row(x)
        # The old state is donated: without the new one in its place the model would be lost.
        with Uninterrupted():
            intake, state = self._begin(x)
            result = intake.learn(state, [(x, y)])
            self._state = result.state
        return np.asarray(result.step.newest)[0]

    def _outputs(self, x: Row) -> np.ndarray | None:
        """Return the outputs for a row if it came next; None before anything was learned."""
        _check_row(x)
        if self._intake is None or self._state is None:
            return None
        return self._intake.predict(self._state, x)

    def _members(self, name: Hashable) -> Members:
        if not isinstance(self._intake, Members):
            raise KeyError(f"{name!r} is no member: none has come yet, or the model was made without `member`")
        return self._intake

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        # Compiled programs are not pickled; equal models find theirs again. Arrays are pickled as NumPy's.
        if self._state is not None:
            leaves = jax.tree.leaves(self._state)
            state["_state"] = [np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf) for leaf in leaves]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = dict(state)
        if (intake := self._intake) is not None and state["_state"] is not None:
            like, tree = jax.tree.flatten(jax.eval_shape(lambda: first_state(intake.learner)))
            as_saved = [jax.eval_shape(jax.random.key_data, leaf) if is_key(leaf) else leaf for leaf in like]
            if [(a.shape, a.dtype) for a in state["_state"]] != [(a.shape, a.dtype) for a in as_saved]:
                raise ValueError(
                    f"this {type(self).__name__} was pickled by a version of foretrace that kept its state in other "
                    "arrays, or with another jax_enable_x64; unpickle it as it was pickled, or learn again"
                )
            pairs = zip(state["_state"], like, strict=True)
            leaves = [jax.random.wrap_key_data(leaf) if is_key(one) else leaf for leaf, one in pairs]
            self._state = copy_state(jax.tree.unflatten(tree, leaves))


def _check_row(x: Any) -> None:
    if not isinstance(x, Mapping):
        raise TypeError(
            f"x is a {type(x).__name__}, expected a dictionary from feature to value; rows of an array go to "
            "partial_fit and predict"
        )


def array_rows(X: Any) -> Iterable[dict[Any, Any]]:
    """Return the rows of an array; features are named by their column."""
    return (dict(enumerate(row)) for row in np.asarray(X).tolist())
