"""What the river estimators share, without river: a feed, a model made at the first row, and its state."""

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

from foretrace._encode import Encoder
from foretrace._feed import Feed
from foretrace._stream_config import SIZES, Size
from foretrace._stream_learner import Model, StreamLearner, StreamState, empty_labels, own, stream_learner
from foretrace._target import ClassTarget, Target

Row = Mapping[Any, Any]


class Online:
    """Learn row by row; the network is made when the first row comes.

    A subclass has the attributes `size`, `rule`, `learning_rate`, `clip`, `overshoot`, `features`, `previous` and
    `seed`.
    """

    size: Size
    rule: str
    learning_rate: float
    clip: float | None
    overshoot: float | None
    features: int
    previous: bool
    seed: int

    def _forget(self) -> None:
        self._feed: Feed | None = None
        self._model: Model | None = None
        self._state: StreamState | None = None

    def _new_target(self) -> Target:
        raise NotImplementedError

    def _new_feed(self, encoder: Encoder) -> Feed:
        return Feed(encoder, self._new_target(), previous=self.previous)

    def _begin(self) -> tuple[Feed, StreamLearner]:
        """Return what learns; made at the first row."""
        if self._feed is None or self._model is None:
            self._feed = self._new_feed(Encoder(width=self.features, adopt=True))
            depth, model_size, state_size = SIZES[self.size]
            self._model = Model(
                input_size=self._feed.width,
                output_size=self._feed.target.output_size,
                classes=isinstance(self._feed.target, ClassTarget),
                depth=depth,
                model_size=model_size,
                state_size=state_size,
                rule=self.rule,
                learning_rate=self.learning_rate,
                clip=self.clip,
                overshoot=self.overshoot,
                delay=self._feed.rows_late,
                seed=self.seed,
            )
            self._state = stream_learner(self._model).init()
        return self._feed, stream_learner(self._model)

    def _learn(self, x: Row, y: Any) -> np.ndarray:
        """Learn from a row; return the outputs for it."""
        feed, learner = self._begin()
        assert self._model is not None and self._state is not None
        inputs = feed.push(x, y)
        labels, mask = empty_labels(self._model), np.zeros(1, bool)
        for due in feed.take(1):
            if due.label is not None:
                labels[0], mask[0] = due.label, True
        self._state, outcome = learner.step(self._state, inputs[None], labels, mask)
        return np.asarray(outcome.newest)[0]

    def _outputs(self, x: Row) -> np.ndarray | None:
        """Return the outputs if this row came next; None before anything was learned."""
        if self._feed is None or self._state is None:
            return None
        _, learner = self._begin()
        return np.asarray(learner.predict(self._state, self._feed.look(x)[None]))[0]

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        # Compiled programs stay behind; equal models find theirs again. Arrays go as NumPy's.
        if self._state is not None:
            state["_state"] = [np.asarray(leaf) for leaf in jax.tree.leaves(_without_key(self._state))]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = dict(state)
        if self._model is not None and state["_state"] is not None:
            like = _without_key(jax.eval_shape(stream_learner(self._model).init))
            found = jax.tree.unflatten(jax.tree.structure(like), state["_state"])
            key = jax.random.wrap_key_data(found.learner.key)
            self._state = own(found._replace(learner=found.learner._replace(key=key)))


def _without_key(state: StreamState) -> StreamState:
    """Return a state whose PRNG key is an ordinary array."""
    data = jax.eval_shape(jax.random.key_data, state.learner.key)
    if isinstance(state.learner.key, jax.Array):
        data = jax.random.key_data(state.learner.key)
    return state._replace(learner=state.learner._replace(key=data))


def array_rows(X: Any) -> Iterable[dict[Any, Any]]:
    """Return the rows of an array; features are named by their column."""
    return (dict(enumerate(row)) for row in np.asarray(X).tolist())
