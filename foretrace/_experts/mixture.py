"""All experts and their mixture as one compiled program: a chunk of rows in, predictions out.

    the network:    predict all rows; learn the step whose labels have come
    for each row:   predict it; then learn the row whose label came with it, `delay` rows ago of the same stream

A row is predicted before its own label is learned, also inside of a chunk. What a late label needs, waits in a ring.
The experts and their weights are shared by all streams; each stream has its own past. Everything but the network is
computed in float64, whatever JAX is set to, by `jax.enable_x64` around each call.
"""

from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from foretrace._experts.baselines import ClassBaselines, NumberBaselines
from foretrace._experts.contexts import ORDERS, Contexts
from foretrace._experts.events import OfEvents
from foretrace._experts.expert import AbstractExpert
from foretrace._experts.features import Maps, Past, Seen, expand, look, maps, new_past, new_seen
from foretrace._experts.gradient import ClassGradient, NumberGradient
from foretrace._experts.least_squares import ClassSquares, NumberSquares
from foretrace._experts.mix_classes import ClassMixture, ClassWeights
from foretrace._experts.mix_numbers import NumberMixture, NumberWeights
from foretrace._experts.neighbours import ClassNeighbours, NumberNeighbours
from foretrace._experts.network import ClassNetwork, NumberNetwork
from foretrace._experts.recurrent import Recurrent, RecurrentState, num_bytes
from foretrace._experts.ring import Ring
from foretrace._experts.rows import Row, unpack
from foretrace._experts.shape import LABELS, WIDE, Shape
from foretrace._learner.packing import Packed, Packing
from foretrace._types import Array, Float, Int

SETS = ("row", "short", "lags", "wide", "waves")
"""Sets of features on which least squares are learned."""

MAX_COEFFICIENTS = 2**14
"""Number of coefficients of an expert beyond which it is left out."""

SETTLED = 10
"""Number of labels from which experts learn numbers: before, nobody knows their scale."""

EXPERTS = ("baselines", "contexts", *SETS, "neighbours", "gradient", "events", "network")
"""Names of the groups of experts."""

MAX_BYTES = 2**30
"""Maximum memory of the cheap experts, and of the past and the late labels of all members."""


class Waiting(NamedTuple):
    """Predictions that wait for their labels.

    Args:
        seen: what the features follow from.
        num_labels: number of labels that had come, at most `SETTLED`.
        predicted: predictions of the experts.
        candidates: predictions between which the mixture chose at its top.
        mixed: predictions of the mixture.
    """

    seen: Seen
    num_labels: Int[Array, ""]
    predicted: Float[Array, "E O"]
    candidates: Float[Array, "T O"]
    mixed: Float[Array, "O"]


class MixtureState(NamedTuple):
    """Everything that the mixture changes.

    Args:
        pasts: past of each stream; the last one belongs to rows that are missing.
        rings: predictions of each stream that wait for their labels; None without delay.
        turns: turn of the ring of each stream.
        experts: state of each group of experts.
        weights: weights of the mixture.
        num_labels: number of labels that have come, at most `SETTLED`.
        network: state of the recurrent network; None without one.
    """

    pasts: Past
    rings: Waiting | None
    turns: Int[Array, "P"]
    experts: tuple[Any, ...]
    weights: NumberWeights | ClassWeights
    num_labels: Int[Array, ""]
    network: RecurrentState | None


S = TypeVar("S", bound=MixtureState | Packed)


class Mixed(NamedTuple):
    """What a step returns for each of its rows.

    Args:
        newest: prediction of the new row: numbers, or logarithms of probabilities.
        resolved: prediction that was made of the row whose label has come.
        errors: of each expert, for that row: mean absolute error, or 1 for a wrong class.
        measures: what the network's step says of itself; None without one.
    """

    newest: Float[Array, "C O"]
    resolved: Float[Array, "C O"]
    errors: Float[Array, "C E"]
    measures: Float[Array, "4"] | None = None


class Mixture:
    """Experts and their mixture for streams of one shape.

    Args:
        shape: what the streams ask.
        experts: names of the groups of experts that take part, among `EXPERTS`; the baselines always do.
        network: recurrent network of the shape; None if it takes no part.

    Raises:
        ValueError: the state would take more than `MAX_BYTES`.
    """

    def __init__(self, shape: Shape, experts: tuple[str, ...] = EXPERTS, network: Recurrent | None = None):
        self.shape = shape
        self.network = network
        self.experts, self.left_out = _experts(shape, experts)
        self.groups = tuple(name for name in experts if name not in self.left_out)
        self.names = tuple(name for expert in self.experts for name in expert.names)
        count, baselines = len(self.names), len(self.experts[0].names)
        if shape.classes:
            self.mixture: Any = ClassMixture(count, baselines, shape.outputs, shape.delay)
        else:
            delays = tuple(shape.delays.tolist())
            self.mixture = NumberMixture(count, baselines, shape.outputs, delays)
        self.ring = Ring(shape.delay)
        self._check_memory()
        with jax.enable_x64(True):
            self._maps = jax.tree.map(jnp.asarray, maps(shape))
        self.packing = Packing(jax.eval_shape(self.init))
        keeping, taking = self.packing.keeping_packed, self.packing.taking_packed
        self._step = jax.jit(keeping(self._traced_step), donate_argnums=0)
        self._advance = jax.jit(keeping(partial(self._traced_step, learning=False)), donate_argnums=0)
        self._predict = jax.jit(taking(self._traced_predict))
        self._weights = jax.jit(taking(lambda state: self.mixture.weights(state.weights)))

    @property
    def reach(self) -> int:
        """Number of rows that the lags reach back; 0 if no expert sees an earlier row as it is."""
        shape = self.shape
        if any(name in self.groups for name in ("lags", "wide", "gradient")):
            return shape.depth
        few = any(name in self.groups for name in ("short", "neighbours"))
        return shape.short_depth if few else 0

    def init(self) -> MixtureState:
        """Return the state before the first row."""
        with jax.enable_x64(True):
            count, weights = self.shape.slots + 1, self.mixture.init()
            waiting = Waiting(
                new_seen(self.shape),
                jnp.zeros((), jnp.int32),
                jnp.zeros((len(self.names), self.shape.outputs)),
                jnp.zeros((len(weights.top), self.shape.outputs)),
                jnp.zeros(self.shape.outputs),
            )
            state = MixtureState(
                jax.tree.map(lambda leaf: jnp.repeat(leaf[None], count, axis=0), new_past(self.shape)),
                self.ring.empty(waiting, count) if self.ring.delay else None,
                jnp.zeros(count, jnp.int32),
                tuple(expert.init() for expert in self.experts),
                weights,
                jnp.zeros((), jnp.int32),
                None if self.network is None else self.network.init(),
            )
            return jax.tree.map(jnp.copy, state)

    def step(self, state: S, rows: Any) -> tuple[S, Mixed]:
        """Predict each row, and learn the row whose label came with it; `state` is donated.

        This and the other methods take a state as it is, or packed by `packing`, and return it likewise.
        """
        with jax.enable_x64(True):
            return self._step(state, self._maps, rows)

    def advance(self, state: S, rows: Any) -> tuple[S, Mixed]:
        """Predict each row without learning: the past moves on; `state` is donated."""
        with jax.enable_x64(True):
            return self._advance(state, self._maps, rows)

    def predict(self, state: MixtureState | Packed, rows: Any) -> Float[Array, "C O"]:
        """Return the prediction of each row if it came next; nothing changes."""
        with jax.enable_x64(True):
            return self._predict(state, self._maps, rows)

    def weights(self, state: MixtureState | Packed) -> dict[str, float]:
        """Return the weight of each expert in the mixture, the mean over the steps ahead."""
        with jax.enable_x64(True):
            found = np.asarray(self._weights(state))
        return dict(zip(self.names, found.reshape(len(self.names), -1).mean(axis=1).tolist(), strict=True))

    def _traced_predict(self, state: MixtureState, maps: Maps, rows: Any) -> Array:
        _, outputs, _ = self._observed(state, rows, learning=False)

        def predicted(row: tuple[Array, Array]) -> Array:
            return self._forward(state, maps, unpack(self.shape, row[0]), row[1])[0].mixed

        return lax.map(predicted, (rows, outputs))

    def _traced_step(
        self, state: MixtureState, maps: Maps, rows: Any, *, learning: bool = True
    ) -> tuple[MixtureState, Mixed]:
        network, outputs, measures = self._observed(state, rows, learning=learning)

        def body(state: MixtureState, row: tuple[Array, Array]) -> tuple[MixtureState, Mixed]:
            return self._row(maps, learning, state, unpack(self.shape, row[0]), row[1])

        state = state._replace(network=None)
        if len(rows) > 1:
            state, mixed = lax.scan(body, state, (rows, outputs))
        else:
            state, one = body(state, (rows[0], outputs[0]))
            mixed = jax.tree.map(lambda leaf: leaf[None], one)
        return state._replace(network=network), mixed._replace(measures=measures)

    def _observed(
        self, state: MixtureState, rows: Any, *, learning: bool
    ) -> tuple[RecurrentState | None, Float[Array, "C M"], Float[Array, "4"] | None]:
        """Return the network's state behind the rows, its outputs for them, and its measures."""
        if self.network is None or state.network is None:
            return None, jnp.zeros((len(rows), 0)), None
        parts = jax.vmap(partial(unpack, self.shape))(rows)
        at = slice(None, None, self.network.chunk)
        slots, is_new = parts.slot[at].astype(jnp.int32), parts.is_new[at] > 0
        if not learning:
            network, outputs = self.network.advance(state.network, parts.x, slots, is_new)
            return network, outputs.astype(rows.dtype), None
        expert: Any = self.experts[-1]
        known = parts.is_late_known > 0
        if not self.shape.classes:
            known = known & (state.num_labels >= SETTLED)
        targets = jax.vmap(partial(expert.target, state.experts[-1]))(parts.late)
        network, step = self.network.step(state.network, parts.x, targets, known, slots, is_new)
        return network, step.outputs.astype(rows.dtype), step.measures

    def _forward(self, state: MixtureState, maps: Maps, row: Row, outputs: Array) -> tuple[Waiting, Past, Any]:
        """Return the predictions of a row, the past behind it, and its features.

        Args:
            state: present state.
            maps: random matrices.
            row: the row.
            outputs: outputs of the network for it.
        """
        slot = row.slot.astype(jnp.int32)
        fresh = row.is_new > 0
        kept = jax.tree.map(lambda leaf: leaf[slot], state.pasts)
        past = optax.tree.where(fresh, new_past(self.shape), kept)
        x = row.x[: self.shape.inputs]
        seen, after = look(self.shape, maps, past, x, row.last, row.moments, outputs)
        features = expand(self.shape, maps, seen)
        predicted = [expert.predict(now, features) for expert, now in zip(self.experts, state.experts, strict=True)]
        found = jnp.concatenate(predicted)
        if self.shape.classes:
            mixed, candidates = self.mixture.predict(state.weights, found, features.num_classes)
        else:
            mixed, candidates = self.mixture.predict(state.weights, found)
            mixed = row.moments[0] + row.moments[1] * mixed
        return Waiting(seen, state.num_labels, found, candidates, mixed), after, features

    def _row(
        self, maps: Maps, learning: bool, state: MixtureState, row: Row, outputs: Array
    ) -> tuple[MixtureState, Mixed]:
        slot = row.slot.astype(jnp.int32)
        new, after, features = self._forward(state, maps, row, outputs)
        pasts = jax.tree.map(lambda leaf, one: leaf.at[slot].set(one), state.pasts, after)
        state = state._replace(pasts=pasts)
        old = new
        if not learning:
            return state, Mixed(new.mixed, new.mixed, jnp.zeros(len(self.names)))
        if state.rings is not None:
            turn = jnp.where(row.is_new > 0, 0, state.turns[slot])
            rings = self.ring.write(state.rings, (slot,), turn, new)
            if self.shape.first_delay is not None:
                state = self._weighed(state, row, rings, turn)
            old = self.ring.oldest(rings, (slot,), turn)
            features = expand(self.shape, maps, old.seen)
            state = state._replace(rings=rings, turns=state.turns.at[slot].set(self.ring.next_turn(turn)))
        return self._learned(state, row, old, features, new.mixed)

    def _learned(
        self, state: MixtureState, row: Row, old: Waiting, features: Any, newest: Array
    ) -> tuple[MixtureState, Mixed]:
        known = (row.known > 0) & (row.slot < self.shape.slots) & jnp.isfinite(row.label).all()
        if self.shape.classes:
            label = (jnp.arange(self.shape.outputs, dtype=jnp.int32) == row.label[0].astype(jnp.int32)).astype(
                jnp.result_type(float)
            )
            wrong = (jnp.argmax(old.predicted, axis=1) != jnp.argmax(label)).astype(label.dtype)
            # A class without room is nobody's prediction.
            wrong = jnp.where(known, wrong, 1.0)
        else:
            mean, scale = old.seen.moments[0], old.seen.moments[1]
            label = jnp.where(known, (row.label - mean) / scale, 0.0)
            wrong = jnp.abs(old.predicted - label[None]).mean(axis=1) * scale
            # Before some labels were known there was no scale to learn in.
            known, came = known & (old.num_labels >= SETTLED), known
            counted = jnp.minimum(state.num_labels + came.astype(jnp.int32), SETTLED)
            state = state._replace(num_labels=counted.astype(jnp.int32))
        spans, at = [], 0
        for expert in self.experts:
            spans.append(old.predicted[at : at + len(expert.names)])
            at += len(expert.names)
        experts = tuple(
            expert.learn(now, features, mine, label, known)
            for expert, now, mine in zip(self.experts, state.experts, spans, strict=True)
        )
        state = state._replace(experts=experts)
        if self.shape.first_delay is None:
            scale_of = features.num_classes if self.shape.classes else old.seen.moments[1]
            made = old.predicted, old.candidates
            weights = self.mixture.learn(state.weights, *made, label, known, scale_of)
            state = state._replace(weights=weights)
        return state, Mixed(newest, old.mixed, wrong)

    def _weighed(self, state: MixtureState, row: Row, rings: Waiting, turn: Array) -> MixtureState:
        """Return the state after the number that came with a row: at each step ahead, the label of another row."""
        slot, steps = row.slot.astype(jnp.int32), jnp.arange(self.shape.outputs, dtype=jnp.int32)
        delays = jnp.asarray(self.shape.delays, jnp.int32)
        places = jnp.mod(turn - delays, self.ring.places)
        mean, scale = rings.seen.moments[slot, places].T
        known = jnp.isfinite(row.came) & (row.slot < self.shape.slots) & (delays <= turn)
        known = known & (rings.num_labels[slot, places] >= SETTLED)
        scale = jnp.where(known, scale, 1.0)
        label = jnp.where(known, (row.came - mean) / scale, 0.0)
        made = (leaf[slot, places, :, steps].T for leaf in (rings.predicted, rings.candidates))
        return state._replace(weights=self.mixture.learn(state.weights, *made, label, known, scale))

    def _check_memory(self) -> None:
        state = jax.eval_shape(self.init)._replace(network=None)
        size, of_members = num_bytes(state), num_bytes((state.pasts, state.rings, state.turns))
        if size > MAX_BYTES:
            # One slot more than there are members: that of missing rows.
            each = of_members / (self.shape.slots + 1)
            room = int((MAX_BYTES - size + of_members) / each) - 1
            raise ValueError(
                f"members={self.shape.slots}, delay={self.shape.delay}: a mixture of experts would take "
                f"{size / 2**20:.0f} MiB, but at most {MAX_BYTES / 2**20:.0f} MiB are allowed; with this delay there "
                f"is room for {max(room, 0)} members; use fewer members or a shorter delay"
            )


def _experts(shape: Shape, wanted: tuple[str, ...]) -> tuple[tuple[AbstractExpert, ...], tuple[str, ...]]:
    """Return the groups of experts of a shape, and the names of those that would be too large."""
    sizes = {
        "row": shape.size(0) + shape.code_size,
        "short": shape.size(shape.short_depth),
        "lags": shape.size(shape.depth),
        "events": shape.events_size,
        "network": shape.size(0) + shape.code_size + shape.network_features,
    }
    outputs = shape.outputs
    squares, neighbours = (ClassSquares, ClassNeighbours) if shape.classes else (NumberSquares, NumberNeighbours)
    groups: dict[str, tuple[AbstractExpert, ...]] = {
        name: (squares(name, sizes.get(name, WIDE), outputs),) for name in SETS
    }
    of_events = squares("events", sizes["events"], outputs), squares("wide_events", WIDE, outputs)
    groups["events"] = (OfEvents(of_events),)
    groups["neighbours"] = (neighbours("neighbours", sizes["short"], outputs),)
    if 1 < shape.size(0) < sizes["short"]:
        # Where what came before does not matter, it only hides which rows are alike.
        groups["neighbours"] += (neighbours("row neighbours", shape.size(0), outputs),)
    if shape.network_features:
        groups["network"] = (squares("network_features", sizes["network"], outputs),)
    if shape.classes:
        groups["contexts"] = (Contexts(outputs, ORDERS if shape.previous else 0, 18 if outputs > 32 else 16),)
        groups["gradient"] = (ClassGradient(sizes["lags"], outputs),)
        found: list[AbstractExpert] = [ClassBaselines(outputs)]
    else:
        groups["gradient"] = (NumberGradient(sizes["lags"], outputs),)
        found = [NumberBaselines(outputs, LABELS)]
    left_out = []
    for name in EXPERTS:
        if name not in groups or not (name in wanted or name == "network"):
            continue
        columns = outputs if name == "neighbours" else outputs * (1 if shape.classes else 2)
        if name != "contexts" and sizes.get(name, WIDE) * columns > MAX_COEFFICIENTS:
            left_out.append(name)
        else:
            found += groups[name]
    if shape.has_network:
        found.append(ClassNetwork() if shape.classes else NumberNetwork(outputs))
    return tuple(found), tuple(left_out)


@lru_cache(maxsize=16)
def mixture(shape: Shape, experts: tuple[str, ...] = EXPERTS) -> Mixture:
    """Return the mixture of a shape without a network; equal shapes share one, and their compiled programs."""
    return Mixture(shape, experts)
