"""What the river estimators share, without river: a feed, a model made at the first row, and its state."""

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import jax
import numpy as np

from foretrace._rows.delayed_labels import DelayedLabels
from foretrace._rows.encode import Encoder
from foretrace._rows.target import ClassTarget, Target
from foretrace.stream._config import SIZES, Size
from foretrace.stream._intake import Intake, Members, OneStream
from foretrace.stream._learner import StreamState, own
from foretrace.stream._model import Model, decided

Row = Mapping[Any, Any]


class Online:
    """Learn row by row; the network is made when the first row comes.

    A subclass has the attributes `size`, `rule`, `learning_rate`, `clip`, `train_encoder`, `credit_depth`,
    `features`, `previous` and `seed`, and `member` and `members` if rows may be those of many streams.
    """

    size: Size
    rule: str
    learning_rate: float
    clip: float | None
    train_encoder: bool | None
    credit_depth: int | None
    features: int
    previous: bool
    seed: int
    member: Hashable | None = None
    members: int = 64

    def _forget(self) -> None:
        self._intake: Intake | None = None
        self._state: StreamState | None = None

    def _new_target(self) -> Target:
        raise NotImplementedError

    def _new_feed(self, encoder: Encoder) -> DelayedLabels:
        return DelayedLabels(encoder, self._new_target(), previous=self.previous)

    def _begin(self) -> tuple[Intake, StreamState]:
        """Return what learns; made at the first row."""
        if self._intake is None or self._state is None:
            whose = () if self.member is None else (self.member,)
            feed = self._new_feed(Encoder(width=self.features, adopt=True, ignore=whose))
            depth, model_size, state_size = SIZES[self.size]
            model = Model(
                input_size=feed.width,
                output_size=feed.target.output_size,
                classes=isinstance(feed.target, ClassTarget),
                depth=depth,
                model_size=model_size,
                state_size=state_size,
                rule=self.rule,
                learning_rate=self.learning_rate,
                clip=self.clip,
                delay=feed.total_delay,
                seed=self.seed,
                members=self.members if whose else None,
            )
            model = decided(model, self.credit_depth, self.train_encoder)
            intake = Members(feed, model, member=self.member, as_text=False) if whose else OneStream(feed, model)
            self._intake, self._state = intake, intake.learner.init()
        return self._intake, self._state

    def _learn(self, x: Row, y: Any) -> np.ndarray:
        """Learn from a row; return the outputs for it."""
        intake, state = self._begin()
        self._state, outcome, _, _ = intake.learn(state, [(x, y)])
        return np.asarray(outcome.newest)[0]

    def _outputs(self, x: Row) -> np.ndarray | None:
        """Return the outputs if this row came next; None before anything was learned."""
        if self._intake is None or self._state is None:
            return None
        return self._intake.look(self._state, x)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        # Compiled programs stay behind; equal models find theirs again. Arrays go as NumPy's.
        if self._state is not None:
            state["_state"] = [np.asarray(leaf) for leaf in jax.tree.leaves(_without_key(self._state))]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = dict(state)
        if self._intake is not None and state["_state"] is not None:
            like = _without_key(jax.eval_shape(self._intake.learner.init))
            found = jax.tree.unflatten(jax.tree.structure(like), state["_state"])
            key = jax.random.wrap_key_data(found.learner.key)
            self._state = own(found._replace(learner=found.learner._replace(key=key)))


class OfMembers(Online):
    """Learn rows of many streams, each with its own memory, all with one network."""

    def leave(self, name: Hashable) -> None:
        """Forget a member: its place is free, and if it comes again it is a new one.

        Raises:
            KeyError: there is none of this name.
        """
        self._members(name).feeds.leave(name)

    def reset(self, name: Hashable) -> None:
        """Let a member start anew with its next row, as if it had just joined.

        Raises:
            KeyError: there is none of this name.
        """
        self._members(name).feeds.table.reset(name)

    def _members(self, name: Hashable) -> Members:
        if not isinstance(self._intake, Members):
            raise KeyError(f"{name!r} is no member: none has come yet, or the model was made without `member`")
        return self._intake


def _without_key(state: StreamState) -> StreamState:
    """Return a state whose PRNG key is an ordinary array."""
    data = jax.eval_shape(jax.random.key_data, state.learner.key)
    if isinstance(state.learner.key, jax.Array):
        data = jax.random.key_data(state.learner.key)
    return state._replace(learner=state.learner._replace(key=data))


def array_rows(X: Any) -> Iterable[dict[Any, Any]]:
    """Return the rows of an array; features are named by their column."""
    return (dict(enumerate(row)) for row in np.asarray(X).tolist())
