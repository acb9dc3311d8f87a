"""The mixture of a stream as compiled programs: they take a chunk of rows and return predictions.

A row is predicted before its own label is learned, also within a chunk. Everything except the
networks is computed in float64, whatever precision JAX is set to.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax

from foretrace._compiler import unoptimised
from foretrace._learner.learner import Learner
from foretrace._learner.packing import Packed, Packing
from foretrace._runs.programs import program
from foretrace._types import Array, Float
from foretrace.stream.experts.by_name import EXPERTS, Own
from foretrace.stream.experts.network import Refusals
from foretrace.stream.experts.shape import Shape
from foretrace.stream.model.arrivals import Outliers
from foretrace.stream.model.features import Maps, maps
from foretrace.stream.model.intervals import MemberErrors
from foretrace.stream.model.moments import settled_scale
from foretrace.stream.model.of_members import read
from foretrace.stream.model.pure import PureMixture
from foretrace.stream.model.rows import unpack
from foretrace.stream.model.state import Mixed, MixtureState, Report, network_in, num_bytes
from foretrace.stream.read.scores import Tallies

# Types in the results of programs, which the files of stored programs name.
for _kind in (Mixed, Outliers, MemberErrors, Tallies, Refusals):
    export.register_namedtuple_serialization(_kind, serialized_name=f"foretrace.{_kind.__name__}")

MAX_BYTES = 2**30
"""Maximum memory of the experts, and of the past and the waiting rows of all members."""

S = TypeVar("S", bound=MixtureState | Packed)


class Mixture:
    """Experts and their mixture, for streams of the same sizes.

    Args:
        shape: sizes of the streams.
        experts: names of the used groups of experts, among `EXPERTS`. The baselines are always
            used.
        network: learner of a recurrent network for these sizes. Default: no network.
        own: the user's experts.

    `pure` has the functions of a state, `maps` has their random matrices, and `like` has the shapes
    and dtypes of a state.

    Raises:
        ValueError: the state would take more than `MAX_BYTES`.
    """

    def __init__(
        self,
        shape: Shape,
        experts: tuple[str, ...] = EXPERTS,
        network: Learner | None = None,
        own: Own = (),
    ):
        self.shape = shape
        self.network = network
        self.pure = pure = PureMixture(shape, experts, network, own)
        wanted = *experts, *(name for name, _ in own)
        self.groups = tuple(name for name in wanted if name not in pure.left_out)
        self._init = jax.jit(self._traced_init, compiler_options=unoptimised())
        with jax.enable_x64(True):
            self.maps = jax.device_put(maps(shape))
            self.like = self._init.eval_shape()
        self._check_memory()
        self.packing = Packing(self.like)
        keeping, taking = self.packing.keeping_packed, self.packing.taking_packed
        # Learners and the user's experts have no text that describes them completely.
        of = None if network or own else repr((shape, experts))
        compiled = partial(program, of=of, wide=True)
        changing = partial(compiled, changes=True)
        self._step = changing("step", keeping(partial(self._traced_rows, pure.step)))
        self._advance = changing("advance", keeping(partial(self._traced_rows, pure.advance)))
        self._take = changing("take", keeping(self._traced_take))
        self._label = changing("label", keeping(self._traced_label))
        self._answer = compiled("answer", taking(pure.answer))
        self._predict = compiled("predict", taking(self._traced_predict))
        self._newest = compiled("newest", taking(self._traced_newest))
        self._report = compiled("report", taking(self._traced_report))
        self._ended = changing("ended", keeping(self._traced_ended))
        self._outliers = compiled("outliers", taking(self._traced_outliers))
        self._margins = compiled("margins", taking(self._traced_margins))

    @property
    def reach(self) -> int:
        """Number of rows that the lags reach back; 0 if no expert reads an earlier row directly."""
        shape = self.shape
        if any(name in self.groups for name in ("lags", "wide", "gradient")):
            return shape.depth
        return shape.short_depth if "neighbours" in self.groups else 0

    def init(self) -> MixtureState:
        """Return the state before the first row."""
        with jax.enable_x64(True):
            try:
                return self._init()
            except ValueError:
                # Inside another program, JAX refuses compiler options. Any other error is raised
                # again here.
                return self._traced_init()

    def _traced_init(self) -> MixtureState:
        with jax.enable_x64(True):
            return self.pure.init(self.maps)

    def step(self, state: S, rows: Any) -> tuple[S, Mixed]:
        """Predict each row, and learn the row whose label arrived with it.

        The buffers of `state` are donated.

        This method and the others take a state directly, or packed by `packing`, and return it in
        the same form.
        """
        return self._step(state, self.maps, rows)

    def advance(self, state: S, rows: Any) -> tuple[S, Mixed]:
        """Predict each row and update the past, without learning. `state` is donated."""
        return self._advance(state, self.maps, rows)

    def take(self, state: S, row: Any, place: int) -> tuple[S, Mixed]:
        """Take a row, which waits for its label at a free place. `state` is donated."""
        return self._take(state, self.maps, row, np.int32(place))

    def label(self, state: S, place: int, y: float, watched: Any = ()) -> tuple[S, dict[str, Any]]:
        """Learn the label of the row at a place; return the scores. `state` is donated."""
        told = np.asarray([y, *watched], np.float64)
        return self._label(state, self.maps, np.int32(place), told)

    def answer(self, state: MixtureState | Packed, place: int) -> Mixed:
        """Return the prediction of the row at a place."""
        found = self._answer(state, np.array([place], np.int32))
        return jax.tree.map(lambda part: np.asarray(part)[0], found)

    def predict(self, state: MixtureState | Packed, row: Any) -> Mixed:
        """Return the prediction of a row if it came next, without changing anything."""
        return self._predict(state, self.maps, row)

    def outliers(self, state: MixtureState | Packed, rows: Any) -> Outliers:
        """Return which numbers of rows are outliers, without changing anything."""
        return jax.tree.map(np.asarray, self._outliers(state, rows))

    def report(self, state: MixtureState | Packed) -> Report:
        """Return the values of a state for a line of the record."""
        parts = jax.tree.map(np.asarray, self._report(state))
        sums = parts.pop("sums").tolist()
        total, line, block = (dict(zip(self.pure.sums, row, strict=True)) for row in sums)
        return Report(total=total, line=line, block=block, **parts)

    def ended(self, state: S, *, block: bool) -> S:
        """Return a state in which the sums since the last line are zero. `state` is donated.

        Args:
            state: the state.
            block: whether the sums since the last block also become zero.
        """
        return self._ended(state, np.array([True, False, not block]))[0]

    def margins(
        self, state: MixtureState | Packed, coverage: float, slot: int = 0
    ) -> Float[np.ndarray, "2 O"]:
        """Return the margins of a stream's intervals below and above numbers, at present."""
        return self.pure.intervals.between(np.asarray(self._margins(state, slot)), coverage)

    def newest(
        self, state: MixtureState | Packed, slots: Sequence[int]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return predictions and margins of the last waiting rows of streams.

        Without a delay, the result is zero.
        """
        return jax.tree.map(np.asarray, self._newest(state, np.array(slots, np.int32)))

    def _traced_rows(
        self, function: Callable[..., Any], state: MixtureState, maps: Maps, rows: Any
    ) -> tuple[MixtureState, Mixed]:
        def body(state: MixtureState, row: Array) -> tuple[MixtureState, Mixed]:
            return function(state, maps, unpack(self.shape, row))

        return _each(body, state, rows)

    def _traced_take(
        self, state: MixtureState, maps: Maps, row: Any, place: Array
    ) -> tuple[MixtureState, Mixed]:
        return self.pure.take(state, maps, unpack(self.shape, row), place)

    def _traced_label(
        self, state: MixtureState, maps: Maps, place: Array, told: Array
    ) -> tuple[MixtureState, dict[str, Any]]:
        return self.pure.label(state, maps, place, told[0], told[1:])

    def _traced_predict(self, state: MixtureState, maps: Maps, row: Any) -> Mixed:
        return self.pure.predict(state, maps, unpack(self.shape, row))

    def _traced_newest(self, state: MixtureState, slots: Array) -> tuple[Array, Array]:
        if state.waiting is None:
            count, outputs = len(slots), self.shape.outputs
            size = 0 if self.pure.intervals is None else outputs
            return jnp.zeros((count, outputs)), jnp.zeros((count, 2, size))
        found = self.pure.newest(state, slots)
        margins = jnp.zeros((len(slots), 2, 0)) if found.margins is None else found.margins
        return found.newest, margins

    def _traced_outliers(self, state: MixtureState, rows: Any) -> Outliers:
        def body(state: MixtureState, row: Array) -> tuple[MixtureState, Outliers]:
            return self.pure.outliers(state, unpack(self.shape, row))

        return lax.scan(body, state, rows)[1]

    def _traced_ended(self, state: MixtureState, kept: Array) -> tuple[MixtureState, tuple[()]]:
        assert state.sums is not None
        return state._replace(sums=jnp.where(kept[:, None], state.sums, 0.0)), ()

    def _traced_report(self, state: MixtureState) -> dict[str, Any]:
        weights = (
            self.pure.mixture.weights(state.weights).reshape(len(self.pure.names), -1).mean(axis=1)
        )
        moments = state.arrived.columns
        units = jnp.stack([moments.all.mean, settled_scale(moments)])
        return {
            "sums": state.sums,
            "weights": weights,
            "units": units,
            "outliers": state.arrived.outliers,
            "tallies": state.tallies,
            "of_members": state.of_members,
            "refusals": None if (network := network_in(state)) is None else network.refusals,
        }

    def _traced_margins(self, state: MixtureState, slot: Array) -> Array:
        scale: Any = state.arrived.target
        margins = self.pure.intervals.margins(state.intervals, scale.scale[0])
        if state.of_members is None:
            return margins
        return margins * read(state.of_members, slot).factor(state.intervals)

    def _check_memory(self) -> None:
        state = self.like
        each_stream = [state.pasts, state.carries, state.arrived.streams, state.of_members]
        each_stream.append(state.past_errors)
        each_stream += [] if self.shape.waiting else [state.waiting]
        size, of_members = num_bytes(state), num_bytes(each_stream)
        if size > MAX_BYTES:
            # One more slot than there are members, for missing rows.
            each = of_members / (self.shape.slots + 1)
            room = int((MAX_BYTES - size + of_members) / each) - 1
            there = f"with this delay there is room for {max(room, 0)} members"
            if self.network is not None:  # the default rule depends on the number of members
                there += f' under --rule "{self.network.rule}"'
            if self.shape.waiting:
                each = num_bytes(state.waiting) / self.shape.waiting
                room = int((MAX_BYTES - size) / each) + self.shape.waiting
                there = f"waiting={self.shape.waiting} rows can be {max(room, 0)}"
            elif self.shape.members is None and self.shape.delay:
                # Waiting rows need nearly all of the memory, in proportion to the delay.
                there = f"the delay can be {self.shape.delay * MAX_BYTES // size} rows"
            raise ValueError(
                f"members={self.shape.slots}, delay={self.shape.delay}: a mixture of experts would "
                f"take {size / 2**20:.0f} MiB, but at most {MAX_BYTES / 2**20:.0f} MiB are "
                f"allowed; {there}; use fewer members, a shorter delay or a smaller model"
            )


def _each(function: Any, state: Any, rows: Any) -> tuple[Any, Any]:
    """Return the state after some rows, and each row's results; a single row needs no loop."""
    if len(jax.tree.leaves(rows)[0]) > 1:
        return lax.scan(function, state, rows)
    state, one = function(state, jax.tree.map(lambda leaf: leaf[0], rows))
    return state, jax.tree.map(lambda leaf: leaf[None], one)


@lru_cache(maxsize=16)
def mixture(shape: Shape, experts: tuple[str, ...] = EXPERTS) -> Mixture:
    """Return the mixture for these sizes without a network; equal sizes share one mixture."""
    return Mixture(shape, experts)
