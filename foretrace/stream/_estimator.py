"""Common part of river's estimators, without river."""

import copy
import dataclasses
import warnings
from collections import deque
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from foretrace._cells.parts import is_key
from foretrace._experts.intervals import check_at_least
from foretrace._experts.mixture import Mixed
from foretrace._rows.encode import SPARE_FEATURES, WORDS, Encoder, room
from foretrace._rows.schema import Column, infer_columns
from foretrace._rows.slots import SlotTable
from foretrace._rows.streams import Awaited, Streams
from foretrace._rows.target import Target
from foretrace._rows.values import check_hashable
from foretrace._runs.signals import Uninterrupted
from foretrace._runs.thread_lock import Lock, locked
from foretrace.stream._arrays import Row, check_lengths
from foretrace.stream._config import StreamConfig
from foretrace.stream._ignored import NO_MEMBERS, idle_experts
from foretrace.stream._intake import Intake, State, member_name
from foretrace.stream._model import resolve, shape_of
from foretrace.stream._model_config import ModelConfig, Size
from foretrace.stream._saved import copy_state

MIN_FEATURES = 64
"""Default minimum number of inputs, with room for features that appear later."""

_LEAST = {"features": 0, "classes": 2, "members": 1, "horizon": 1, "delay": 0, "words": 0}
"""Least value of each option that is a number of something."""


@dataclasses.dataclass
class Asked(Awaited):
    """A row that is pending until its label arrives.

    Args:
        x: the row, as the object that was given.
        text: its features in print. Values need not be comparable: those of NumPy and pandas are
            not all.
        id: name that the caller gave it, None without.
        answer: answer that was given.
        is_labelled: whether its label has come.
    """

    x: Row
    text: str
    id: Hashable
    answer: Mixed
    is_labelled: bool = False

    def give(self, y: Any) -> None:
        """Give the row its label."""
        self.value, self.is_labelled = y, True


class OnlineEstimator:
    """Learn row by row, from one or many streams; the first row creates the model.

    A row or target that is refused changes nothing. Several threads may share an estimator: each
    call is done as a whole, so that the result equals the calls in some order.

    Args:
        size: size of the model; None for `model`'s size.
        model: options of the model; None for the size's options.
        features: number of inputs but for words; None for as many as the first row needs, and some
            for later features.
        previous: whether the last known target is an input.
        member: feature that names the member of a row; None if all rows belong to one stream.
        members: maximum number of members.
        delay: number of rows after which a label arrives. Without, `learn_one` takes a row with its
            label. With a delay, a row is added by asking for its prediction, and
            `learn_one` gives the oldest row that was taken its label, or the row of an id.
        words: number of inputs of each feature that is a text in the first row; 0 takes it for a
            category.
        at_least: lower bound of predicted numbers and of the ends of their intervals.

    Options that have no effect are warned of.

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
    ) -> None:
        self._lock = Lock()
        # River clones an estimator by its signature: each argument has an attribute of its name.
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
        self._check_options()
        # The line of the caller, also where a class has an initialiser of its own.
        level = 2 + (type(self).__init__ is not OnlineEstimator.__init__)
        for line in self._ignored():
            warnings.warn(f"{type(self).__name__}: {line}", stacklevel=level)
        self._forget()

    @property
    def _ahead(self) -> int:
        """Number of steps ahead; 0 to predict the target of a row."""
        return 0

    @property
    def _unlagged(self) -> Collection[Hashable]:
        """Features that hold values of the next rows."""
        return ()

    def _check_options(self) -> None:
        check_at_least(self.at_least)
        for name, least in _LEAST.items():
            value = getattr(self, name, None)
            if value is not None and not (isinstance(value, int | np.integer) and value >= least):
                raise ValueError(f"{name}={value!r}, expected a whole number, at least {least}")

    def _ignored(self) -> list[str]:
        """Return a line for each option that was given and has no effect."""
        lines = idle_experts(self._config, self._predicts_classes)
        if self.member is None and self.members != StreamConfig.members:
            lines.append(f"members has no effect: {NO_MEMBERS}")
        return lines

    @locked
    def leave(self, name: Hashable) -> None:
        """Forget a member and free its slot; if it returns, it is a new member.

        Raises:
            KeyError: there is no member of this name.
        """
        self._members(name).streams.table.leave(name)

    @locked
    def reset(self, name: Hashable) -> None:
        """Restart a member with its next row, as if it had just joined.

        Raises:
            KeyError: there is no member of this name.
        """
        self._members(name).streams.table.reset(name)

    def _new_target(self, labels: Sequence[Any]) -> Target:
        """Return a new target.

        Args:
            labels: labels that are known to come.
        """
        raise NotImplementedError

    def _forget(self) -> None:
        self._has_warned = False
        self._intake: Intake | None = None
        self._state: State | None = None

    def _begun(self, x: Row, labels: Sequence[Any]) -> tuple[Intake, State]:
        """Return intake and state, which the first row creates."""
        if self._intake is not None and self._state is not None:
            return self._intake, self._state
        intake = self._new_intake(x, labels)
        return intake, intake.mixture.packing.pack(intake.mixture.init())

    def _new_intake(self, x: Row, known: Sequence[Any]) -> Intake:
        ignore = () if self.member is None else (self.member,)
        sees_texts = bool({"words", "network"} & {*self._config.expert_names()})
        found = infer_columns([x], {}, texts=self.words > 0 and sees_texts)
        columns = [column for column in found if column.name != self.member]
        texts = [column for column in columns if column.kind == "text"]
        width = self._width([column for column in columns if column.kind != "text"])
        width += self.words * len(texts)
        names: dict[str, Any] = {"ignore": ignore, "unlagged": self._unlagged}
        encoder = Encoder(texts, width=width, hashed=self.words, adopt=True, **names)
        # Earlier values of the numbers of the first row are features of the experts.
        encoder.look_at(x)
        target = self._new_target(known)
        shape = shape_of(
            encoder,
            target,
            previous=self.previous,
            delay=self.delay + self._ahead,
            members=None if self.member is None else self.members,
            ahead=self._ahead > 0,
            at_least=self.at_least,
        )
        table = SlotTable(shape.slots)
        streams = Streams(encoder, target, table, delay=self.delay, horizon=self._ahead)
        return Intake(streams, *resolve(self._config, shape), member=self.member, as_text=False)

    def _width(self, columns: Sequence[Column]) -> int:
        """Return the number of inputs of a stream whose first row has these columns."""
        if self.features is not None:
            return self.features
        needed = room(columns)
        return MIN_FEATURES if needed <= MIN_FEATURES else needed + SPARE_FEATURES

    def _check(self, rows: Sequence[Row], targets: Sequence[Any]) -> None:
        """Raise an error if a row or its target is refused; nothing has changed then."""
        check_lengths(rows, targets)
        target = self._new_target(()) if self._intake is None else self._intake.target
        for i, (x, y) in enumerate(zip(rows, targets, strict=True)):
            check_row(x)
            if self.member is not None:
                member_name(x, self.member)
            target.check(y, "y" if len(rows) == 1 else f"y[{i}]")

    def _learn(self, x: Row, y: Any, labels: Sequence[Any] = ()) -> Mixed:
        """Learn from a checked row; return its prediction. Ctrl-C waits until it is learned.

        Args:
            x: features of the row.
            y: its target.
            labels: labels that are known to come.
        """
        # The old state is donated: without the new one in its place the model would be lost.
        with Uninterrupted():
            intake, state = self._begun(x, labels)
            self._state, mixed = intake.learn(state, [(x, y)])
            self._intake = intake
        return jax.tree.map(lambda part: np.asarray(part)[0], Mixed(*mixed[:3]))

    def _take(self, x: Row, id: Hashable = None, labels: Sequence[Any] = ()) -> Asked:
        """Add the next row, learn from the row whose label is due, and return the added row."""
        name = None if self.member is None else member_name(x, self.member)
        rows = self._waiting(name)
        if id is not None:
            if found := _of_id(rows, id):
                return found[0]
        elif rows and rows[-1].x is x and rows[-1].text == _text(x):
            return rows[-1]
        with Uninterrupted():
            answer = self._learn(x, None, labels)
            row = self._waiting(name)[-1] = Asked(x, _text(x), id, answer)
        return row

    def _waiting(self, name: Hashable) -> deque[Asked]:
        """Return a member's pending rows."""
        return deque() if self._intake is None else self._intake.streams.pending(name)

    def _label(self, x: Row, y: Any, id: Hashable) -> None:
        """Give a pending row its label: the row with the id, or the oldest one without a label.

        Its values do not count: a pipeline has changed them by newer statistics.

        Raises:
            ValueError: no such row waits for its label.
        """
        name = None if self.member is None else x[self.member]
        rows = self._waiting(name)
        found = [row for row in (rows if id is None else _of_id(rows, id)) if not row.is_labelled]
        if not found:
            raise ValueError(
                f"learn_one: no row {'' if id is None else f'of the id {id!r} '}waits for its "
                f"label among the last {self.delay} that a prediction was asked for; ask for its "
                "prediction first, or make the model with a greater `delay`"
            )
        if id is None and not self._has_warned:
            self._warn_of_another_order(_text(x), [row.text for row in found])
        found[0].give(y)

    def _warn_of_another_order(self, text: str, waiting: Sequence[str]) -> None:
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
        """Learn from rows in order; if one is refused, learn from none.

        Args:
            rows: features of the rows.
            targets: their targets.
            labels: labels that are known to come, beside these.
        """
        self._check(rows, targets)
        known = [*targets, *labels]
        for x, y in zip(rows, targets, strict=True):
            if self.delay:
                self._take(x, labels=known).give(y)
            else:
                self._learn(x, y, known)
        self._say_news()

    def _learn_row(self, x: Row, y: Any, id: Hashable) -> None:
        """Learn from the next row and its label; with a delay, label a pending row."""
        self._check([x], [y])
        if self.delay:
            self._label(x, y, id)
        else:
            self._learn(x, y, [y])
        self._say_news()

    def _say_news(self, stacklevel: int = 5) -> None:
        """Warn once of values that could not be used; their rows are learned."""
        for news in [] if self._intake is None else self._intake.pop_news():
            warnings.warn(f"{type(self).__name__}: {news}", stacklevel=stacklevel)

    def _answer(self, x: Row, id: Hashable) -> Mixed | None:
        """Return a row's prediction as if it were next; None before learning.

        With a delay the row is taken: it has come.
        """
        check_row(x)
        if self.delay:
            return self._take(x, id).answer
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
        # A copy: the pickled object must not change meanwhile in another thread.
        state = copy.deepcopy(
            {name: value for name, value in self.__dict__.items() if name != "_state"}
        )
        # Compiled programs are not pickled; equal models find theirs again. Arrays are pickled as
        # NumPy's.
        state["_state"] = None
        if self._intake is not None and self._state is not None:
            leaves = jax.tree.leaves(self._intake.mixture.packing.unpack(self._state))
            plain = (jax.random.key_data(leaf) if is_key(leaf) else leaf for leaf in leaves)
            state["_state"] = [np.asarray(leaf) for leaf in plain]
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


def _config_of(size: Size | None, model: ModelConfig | None) -> ModelConfig:
    if model is None:
        return ModelConfig() if size is None else ModelConfig(size)
    if not isinstance(model, ModelConfig):
        raise ValueError(f"model={model!r}, expected a ModelConfig, such as ModelConfig('small')")
    if size is not None:
        raise ValueError(f"size={size!r} beside a model: use model=ModelConfig(size={size!r}, …)")
    return model


def _of_id(rows: Iterable[Asked], id: Hashable) -> list[Asked]:
    """Return the row of an id, if it waits.

    Raises:
        TypeError: the id cannot be hashed.
    """
    check_hashable(id, "id")
    return [row for row in rows if row.id in {id}]  # some values have no `==`


def _text(x: Row) -> str:
    return repr(dict(x))


def check_row(x: Any) -> None:
    """Raise a TypeError if x is no dictionary."""
    if not isinstance(x, Mapping):
        raise TypeError(
            f"x is a {type(x).__name__}, expected a dictionary from feature to value; rows of an "
            "array go to partial_fit and predict"
        )
