"""Common part of the river estimators, which does not need river."""

import copy
import math
import warnings
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from foretrace._cells.parts import is_key
from foretrace._runs.signals import Uninterrupted
from foretrace._runs.thread_lock import Lock, locked
from foretrace.stream.experts.by_name import own_experts
from foretrace.stream.experts.expert import AbstractExpert
from foretrace.stream.model.intake import Intake, State, member_name
from foretrace.stream.model.intervals import check_at_least
from foretrace.stream.model.model import resolve, shape_of
from foretrace.stream.model.model_config import ModelConfig, Size
from foretrace.stream.model.state import Mixed
from foretrace.stream.python.arrays import Row, check_lengths
from foretrace.stream.read.encode import SPARE_FEATURES, WORDS, Encoder, room
from foretrace.stream.read.schema import Column, infer_columns
from foretrace.stream.read.slots import SlotTable
from foretrace.stream.read.streams import Streams
from foretrace.stream.read.target import Target
from foretrace.stream.read.values import check_hashable
from foretrace.stream.runs.config import CHUNK, StreamConfig
from foretrace.stream.runs.ignored import NO_MEMBERS, idle_experts
from foretrace.stream.runs.saved import copy_state

MIN_FEATURES = 64
"""Default minimum number of inputs, so that features that appear later find room."""

_LEAST = {"features": 0, "classes": 2, "members": 1, "horizon": 1, "delay": 0, "words": 0}
_LEAST["waiting"] = 0
"""Minimum value of each option that is a number."""


class OnlineEstimator:
    """Estimator that learns row by row, from one or many streams.

    The first row creates the model. A row or target that is refused changes nothing. Several
    threads may share an estimator: calls do not overlap, so the result equals that of the calls in
    some order.

    Args:
        size: size of the model. Default: the size in `model`.
        model: options of the model. Default: the options of the size.
        features: number of inputs without words. Default: as many as the first row needs, and some
            for features that appear later.
        previous: whether the last known target is an input.
        member: feature that names the member of a row. Default: all rows belong to one stream.
        members: maximum number of members.
        delay: number of rows after which a label arrives. If it is 0, `learn_one` takes a row with
            its label. Otherwise asking for the prediction of a row adds the row, and `learn_one`
            gives the label of the oldest such row, or of the row with a given id.
        waiting: maximum number of rows that wait for their labels by an id. Asking for the
            prediction of a row with an id adds the row. 0 if there are no ids.
        experts: the user's experts, by name, in addition to the experts of the model.
        words: number of inputs for each feature that is a text in the first row. With 0, such a
            feature is a category.
        at_least: lower bound of predicted numbers and of the ends of their intervals.
        expert_columns: features that hold predictions of the row's number by other models. Each is
            an expert of the mixture, and not an input.

    Options without effect cause a warning.

    Raises:
        ValueError: an option is out of range, or both size and model are given.
    """

    _predicts_classes = False

    def __init__(
        self,
        size: Size | None = None,
        model: ModelConfig | None = None,
        features: int | None = None,
        previous: bool = True,
        member: Hashable | None = None,
        members: int = StreamConfig.members,
        delay: int = 0,
        words: int = WORDS,
        at_least: float | None = None,
        waiting: int = 0,
        experts: Mapping[str, type[AbstractExpert]] | None = None,
        expert_columns: Sequence[str] | None = None,
    ) -> None:
        self._lock = Lock()
        # River clones an estimator by its signature, so each argument has an attribute of the same
        # name.
        self.size = size
        self.model = model
        self._config = _config_of(size, model)
        self.features = features
        self.previous = previous
        self.member = member
        self.members = members
        self.delay = delay
        self.words = words
        self.at_least = at_least
        self.waiting = waiting
        self.experts = experts
        self.expert_columns = expert_columns
        self._own = own_experts(experts)
        self._check_options()
        # The warning points at the line of the caller, also if a subclass has its own initialiser.
        level = 2 + (type(self).__init__ is not OnlineEstimator.__init__)
        for line in self._ignored():
            warnings.warn(f"{type(self).__name__}: {line}", stacklevel=level)
        self._forget()

    @property
    def _ahead(self) -> int:
        """Number of steps ahead; 0 to predict the target of a row."""
        return 0

    @property
    def _places(self) -> int:
        """Number of rows that may wait for their labels."""
        slots = 1 if self.member is None else self.members
        return self.waiting or slots * (self.delay + 1) * (self.delay > 0)

    @property
    def _unlagged(self) -> Collection[Hashable]:
        """Features that contain values of the next rows."""
        return ()

    def _check_options(self) -> None:
        check_at_least(self.at_least)
        if isinstance(self.expert_columns, str):
            raise ValueError(f"expert_columns={self.expert_columns!r} must be a list of names")
        if self.delay and self.waiting:
            raise ValueError(
                f"delay={self.delay} beside waiting={self.waiting}: with a delay, labels come in "
                "order; leave it out, and give rows and labels an `id`"
            )
        for name, least in _LEAST.items():
            value = getattr(self, name, None)
            if value is not None and not (isinstance(value, int | np.integer) and value >= least):
                raise ValueError(f"{name}={value!r}, expected a whole number, at least {least}")

    def _ignored(self) -> list[str]:
        """Return a line for each option that was given but has no effect."""
        lines = idle_experts(self._config, self._predicts_classes)
        if self.member is None and self.members != StreamConfig.members:
            lines.append(f"members has no effect: {NO_MEMBERS}")
        return lines

    @locked
    def leave(self, name: Hashable) -> None:
        """Forget a member and free its slot. If the member returns, it counts as new.

        Raises:
            KeyError: there is no member with this name.
        """
        self._members(name).streams.table.leave(name)

    @locked
    def reset(self, name: Hashable) -> None:
        """Let a member start anew with its next row, as if it had just joined.

        Raises:
            KeyError: there is no member with this name.
        """
        intake = self._members(name)
        intake.streams.table.reset(name)
        for id in [*intake.room.of_member(name)]:
            if isinstance(id, _Unnamed):  # its label could only come in order
                intake.room.drop(id)

    def _new_target(self, labels: Sequence[Any]) -> Target:
        """Return a new target.

        Args:
            labels: labels that are known in advance.
        """
        raise NotImplementedError

    def _forget(self) -> None:
        self._has_warned = False
        self._num_taken = 0
        self._surprise: Any = math.nan
        self._intake: Intake | None = None
        self._state: State | None = None

    def _begun(self, x: Row, labels: Sequence[Any]) -> tuple[Intake, State]:
        """Return intake and state; the first row creates them."""
        if self._intake is not None and self._state is not None:
            return self._intake, self._state
        intake = self._new_intake(x, labels)
        return intake, intake.mixture.packing.pack(intake.mixture.init())

    def _new_intake(self, x: Row, known: Sequence[Any]) -> Intake:
        outside = tuple(self.expert_columns or ())
        ignore = (*(() if self.member is None else (self.member,)), *outside)
        sees_texts = bool({"words", "network"} & {*self._config.expert_names()})
        found = infer_columns([x], {}, texts=self.words > 0 and sees_texts)
        columns = [column for column in found if column.name not in ignore]
        texts = [column for column in columns if column.kind == "text"]
        width = self._width([column for column in columns if column.kind != "text"])
        width += self.words * len(texts)
        names: dict[str, Any] = {"ignore": ignore, "unlagged": self._unlagged}
        encoder = Encoder(texts, width=width, hashed=self.words, adopt=True, **names)
        # For the numbers of the first row, earlier values are features of the experts.
        encoder.look_at(x)
        target = self._new_target(known)
        shape = shape_of(
            encoder,
            target,
            previous=self.previous,
            delay=self._ahead,
            waiting=self._places,
            members=None if self.member is None else self.members,
            ahead=self._ahead > 0,
            at_least=self.at_least,
            outside=outside,
        )
        table = SlotTable(shape.slots)
        streams = Streams(encoder, target, table, horizon=self._ahead, outside=outside)
        options: dict[str, Any] = {"member": self.member, "as_text": False, "own": self._own}
        return Intake(streams, *resolve(self._config, shape), **options)

    def _width(self, columns: Sequence[Column]) -> int:
        """Return the number of inputs for a stream whose first row has these columns."""
        if self.features is not None:
            return self.features
        needed = room(columns)
        return MIN_FEATURES if needed <= MIN_FEATURES else needed + SPARE_FEATURES

    def _check(self, rows: Sequence[Row], targets: Sequence[Any]) -> None:
        """Raise an error if a row or its target is refused. Nothing has changed then."""
        check_lengths(rows, targets)
        target = self._new_target(()) if self._intake is None else self._intake.target
        for i, (x, y) in enumerate(zip(rows, targets, strict=True)):
            check_row(x)
            if self.member is not None:
                member_name(x, self.member)
            target.check(y, "y" if len(rows) == 1 else f"y[{i}]")

    def _learn(
        self, pairs: Sequence[tuple[Row, Any]], labels: Sequence[Any] = (), chunk: int = 1
    ) -> Mixed:
        """Learn from checked rows, and return the first prediction. Ctrl-C waits until then.

        Args:
            pairs: features and target of each row, at most `chunk`.
            labels: labels that are known in advance.
            chunk: number of rows in a call of the program.
        """
        # The old state is donated. If the new state did not replace it, the model would be lost.
        with Uninterrupted():
            intake, state = self._begun(pairs[0][0], labels)
            intake.chunk = chunk
            self._state, mixed = intake.learn(state, pairs)
            self._intake = intake
        # The value of a single row stays an array of JAX: to convert it would wait for the program.
        self._surprise = mixed.surprise if chunk == 1 else mixed.last_surprise(len(pairs))
        return mixed.first

    def _take(self, x: Row, id: Hashable) -> Mixed:
        """Take the next row unless it already waits, and return its prediction."""
        name = self._name(x)
        # Some values of NumPy and pandas cannot be compared. Without a delay, waiting rows have an
        # id.
        about = {"text": repr(dict(x)), "given": x} if self.delay else {}
        if id is not None:
            check_hashable(id, "id")
        if self._intake is not None:
            self._intake.free_places()
        room, key = None if self._intake is None else self._intake.room, id
        if room is not None and id is None and (ids := room.of_member(name)):
            last = room.rows[ids[-1]]
            key = ids[-1] if last.given is x and last.text == about["text"] else None
        if room is not None and key in room:
            assert self._intake is not None and self._state is not None
            return self._intake.answer(self._state, key)
        if room is not None and id is not None and id in room.told:
            raise ValueError(
                f"the row of id={id!r} has its label already; give each row an id of its own"
            )
        with Uninterrupted():
            intake, state = self._begun(x, ())
            self._intake = intake
            while len(waits := intake.room.of_member(name)) > self.delay > 0:
                # The label has not arrived in time, which counts as a missing label.
                state = intake.drop(state, waits[0])
            self._num_taken += 1
            key = _Unnamed(self._num_taken) if id is None else id
            self._state, answer = intake.take(state, x, key, **about)
        return answer

    def _name(self, x: Row) -> Hashable:
        return None if self.member is None else member_name(x, self.member)

    def _label(self, x: Row | None, y: Any, id: Hashable) -> None:
        """Learn the label of a row that waits: of the row with this id, or of the oldest row.

        The values in `x` are ignored, because a pipeline may have changed them with newer
        statistics.

        Raises:
            KeyError: no row with this id waits for its label.
            ValueError: the row with this id has another label, or no row waits.
        """
        if self._intake is not None:
            self._intake.free_places()
        room = None if self._intake is None else self._intake.room
        if id is not None:
            check_hashable(id, "id")
        elif x is not None:
            found = [] if room is None else [*room.of_member(self._name(x))]
            if not found:
                raise ValueError(
                    "learn_one: no row waits for its label among the last that a prediction was "
                    f"asked for, {self.delay + 1} at most; ask for its prediction first, or make "
                    "the model with a greater `delay`"
                )
            assert room is not None
            id = found[0]
            if not self._has_warned:
                self._warn_of_another_order(x, [room.rows[one].text for one in found])
        if self._intake is None or self._state is None:
            raise KeyError(f"no row of the id {id!r} waits for its label: none was asked for")
        with Uninterrupted():
            self._state, scored = self._intake.label(self._state, id, y)
        if scored is not None:
            self._surprise = scored.surprise

    def _warn_of_another_order(self, x: Row, waiting: Sequence[str]) -> None:
        text = repr(dict(x))
        if text != waiting[0] and text in waiting:
            self._has_warned = True
            warnings.warn(
                f"{type(self).__name__}: the oldest row that waits got this label, but x equals a "
                "later one; give predictions and labels an `id` if labels come in another order, "
                "and a row whose label never comes the label None",
                stacklevel=6,
            )

    def _learn_all(
        self, rows: Sequence[Row], targets: Sequence[Any], labels: Sequence[Any] = ()
    ) -> None:
        """Learn from rows in order. If a row is refused, learn from none of them.

        Args:
            rows: features of the rows.
            targets: targets of the rows.
            labels: further labels that are known in advance.
        """
        self._check(rows, targets)
        known, pairs = [*targets, *labels], [*zip(rows, targets, strict=True)]
        chunk = 1 if self.delay or len(pairs) < CHUNK else CHUNK
        for start in range(0, len(pairs), chunk):
            x, y = pairs[start]
            if self.delay and self._waits(x):
                self._label(x, y, None)
            else:
                self._learn(pairs[start : start + chunk], known, chunk)
        self._say_news()

    def _waits(self, x: Row) -> bool:
        """Return whether a row of the same member waits for its label."""
        return self._intake is not None and bool(self._intake.room.of_member(self._name(x)))

    def _learn_row(self, x: Row | None, y: Any, id: Hashable) -> None:
        """Learn from the next row and its label, or learn the label of a row that waits."""
        by_id = id is not None and self._places > 0
        if x is None and not by_id:
            raise ValueError(
                "learn_one(None, y) needs the `id` of a row that waits for its label, in a model "
                "that was made with `waiting`, such as waiting=1000, or with a `delay`"
            )
        if x is None or by_id:
            target = self._new_target(()) if self._intake is None else self._intake.target
            target.check(y, "y")
        else:
            self._check([x], [y])
        if by_id or self.delay:
            self._label(x, y, id)
        elif x is not None:
            self._learn([(x, y)], [y])
        self._say_news()

    def _say_news(self, stacklevel: int = 5) -> None:
        """Warn once about values that could not be used. Their rows are learned."""
        for _, news in [] if self._intake is None else self._intake.pop_news():
            warnings.warn(f"{type(self).__name__}: {news}", stacklevel=stacklevel)

    def _answer(self, x: Row, id: Hashable) -> Mixed | None:
        """Return the prediction of a row as if it were the next one; None before any learning.

        With a delay, or with an id under which the row can wait for its label, the row is also
        taken.
        """
        check_row(x)
        if self.delay or (self.waiting and id is not None):
            return self._take(x, id)
        return self._as_next(x)

    def _as_next(self, x: Row) -> Mixed | None:
        """Return the prediction of a row that is not taken; None before any learning."""
        check_row(x)
        if self._intake is None or self._state is None:
            return None
        return self._intake.predict(self._state, x)

    def _members(self, name: Hashable) -> Intake:
        if self._intake is None or self.member is None:
            raise KeyError(
                f"{name!r} is no member: none has come yet, or the model was made without `member`"
            )
        return self._intake

    @locked
    def __getstate__(self) -> dict[str, Any]:
        # A copy, because another thread must not change the object while it is pickled.
        state = copy.deepcopy(
            {name: value for name, value in self.__dict__.items() if name != "_state"}
        )
        # Compiled programs are not pickled; equal models find their programs again. Arrays are
        # pickled as NumPy arrays.
        state["_state"], state["_surprise"] = None, np.array(self._surprise)
        if self._intake is not None and self._state is not None:
            leaves = jax.tree.leaves(self._intake.mixture.packing.unpack(self._state))
            plain = (jax.random.key_data(leaf) if is_key(leaf) else leaf for leaf in leaves)
            state["_state"] = [np.array(leaf) for leaf in plain]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ = dict(state)
        if (intake := self._intake) is None or state["_state"] is None:
            return
        like, tree = jax.tree.flatten(intake.mixture.like)
        try:
            pairs = zip(state["_state"], like, strict=True)
            leaves = (jax.random.wrap_key_data(a) if is_key(b) else a for a, b in pairs)
            kept = copy_state(jax.tree.unflatten(tree, leaves))
            self._state = intake.mixture.packing.pack(kept)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"this {type(self).__name__} was pickled by a version of foretrace that kept its "
                "state in other arrays, or with another jax_enable_x64; unpickle it as it was "
                "pickled, or learn again"
            ) from error


class _Unnamed(NamedTuple):
    """Id of a row to which the caller gave none."""

    number: int


def _config_of(size: Size | None, model: ModelConfig | None) -> ModelConfig:
    if model is None:
        return ModelConfig() if size is None else ModelConfig(size)
    if not isinstance(model, ModelConfig):
        raise ValueError(f"model={model!r}, expected a ModelConfig, such as ModelConfig('small')")
    if size is not None:
        raise ValueError(f"size={size!r} beside a model: use model=ModelConfig(size={size!r}, …)")
    return model


def check_row(x: Any) -> None:
    """Raise a TypeError if x is not a dictionary."""
    if not isinstance(x, Mapping):
        raise TypeError(
            f"x is a {type(x).__name__}, expected a dictionary from feature to value; rows of an "
            "array go to partial_fit and predict"
        )
