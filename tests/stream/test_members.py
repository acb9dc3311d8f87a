"""Many streams share a network: each remembers as if alone, and all learn in turn."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import fast

import foretrace as ft
from foretrace._experts.recurrent import Recurrent
from foretrace._experts.shape import Shape
from foretrace._rows.encode import Encoder
from foretrace._rows.schema import Column
from foretrace._rows.slots import NoFreeSlotError, SlotTable
from foretrace._rows.streams import Streams
from foretrace._rows.target import ClassTarget
from foretrace.stream._model import build_mixture, resolve
from foretrace.stream._model_config import ModelConfig
from foretrace.stream._saved import copy_state

pytestmark = [pytest.mark.exact, pytest.mark.usefixtures("standard_promotion")]
MEMBERS, STEPS = 3, 8
MADE = {}


def learner(rate, rule=ft.ONLINE):
    network = ft.Network(
        2, 2, model_size=4, depth=2, cell=ft.LRU.factory(state_size=3), key=jax.random.key(0)
    )
    return ft.Learner(network, rule=rule, optimizer=optax.adam(rate), loss=ft.losses.squared_error)


class Compiled:
    """A network for members, or for one stream, its methods compiled."""

    def __init__(self, one, members=MEMBERS, delay=0):
        self.network = Recurrent(one, slots=members, delay=delay)
        self.init = self.network.init
        self._step, self._advance = jax.jit(self.network.step), jax.jit(self.network.advance)

    def step(self, state, slot, x, y, is_new=False, known=True):
        rows = np.asarray(x)[None], np.asarray(y)[None], np.array([known])
        return self._step(state, *rows, np.int32(slot), np.bool_(is_new))

    def advance(self, state, slot, x, is_new=False):
        return self._advance(state, np.asarray(x)[None], np.int32(slot), np.bool_(is_new))


def many(rate, delay=0):
    """Return the same learner for the same arguments: compiled once."""
    if (rate, delay) not in MADE:
        MADE[rate, delay] = Compiled(learner(rate), delay=delay)
    return MADE[rate, delay]


def data(seed=0, steps=STEPS, members=MEMBERS):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(steps, members, 2)), rng.normal(size=(steps, members, 2))


def leaves(tree):
    found = []
    for leaf in jax.tree.leaves(tree):
        key = jnp.issubdtype(getattr(leaf, "dtype", float), jax.dtypes.prng_key)
        found.append(np.array(jax.random.key_data(leaf) if key else leaf))
    return found


def assert_close(a, b, tolerance=1e-12):
    for x, y in zip(leaves(a), leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def assert_same(a, b):
    for x, y in zip(leaves(a), leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


def place(state, slot):
    """Return a member's memory; other members' parts of its ring are not read."""
    return jax.tree.map(lambda leaf: leaf[slot], (state.learner.carry, state.turn))


def shared(state):
    return (
        state.learner.network,
        state.learner.opt_state,
        state.learner.step,
        state.learner.skipped,
        state.learner.key,
    )


@pytest.mark.full
@pytest.mark.parametrize("delay", fast([2, 0]))
@given(slots=st.lists(st.integers(0, MEMBERS - 1), max_size=2 * STEPS))
def test_each_member_remembers_as_if_it_were_alone(delay, slots):
    model = many(0.0, delay)
    alone = MADE.setdefault(delay, Compiled(learner(0.0), None, delay))
    xs, ys = data()
    state, outputs = model.init(), [[] for _ in range(MEMBERS)]
    for slot in slots:
        t = len(outputs[slot])
        if t < STEPS:
            state, step = model.step(state, slot, xs[t, slot], ys[t, slot])
            outputs[slot].append(step.outputs[0])
    for slot in range(MEMBERS):
        one = alone.init()
        for t, output in enumerate(outputs[slot]):
            one, step = alone.step(one, 0, xs[t, slot], ys[t, slot])
            assert_close(step.outputs[0], output)
        assert_close(one.learner.carry, place(state, slot)[0])
    assert_same(place(state, MEMBERS), place(model.init(), MEMBERS))


@pytest.mark.parametrize(("delay", "credit"), fast([(2, 0), (0, 0), (2, 2)]))
def test_members_share_a_learner_that_takes_their_rows_in_turn(delay, credit):
    """The definition: one learner, given the carry of the member before the row of the label."""
    rule = ft.ONLINE.with_depth(credit)
    model = Compiled(learner(0.05, rule), delay=delay) if credit else many(0.05, delay)
    one = learner(0.05, rule)
    xs, ys = map(jnp.asarray, data())
    state, now = model.init(), one.init()
    carries = [[now.carry] for _ in range(MEMBERS)]
    for t in range(STEPS):
        for slot in (2, 0, 1):
            mine, late = carries[slot], t - delay
            outputs, ahead = one.predict(now._replace(carry=mine[t]), xs[t, slot][None])
            y = ys[max(late, 0), slot]
            state, step = model.step(state, slot, xs[t, slot], y, known=late >= 0)
            assert_close(outputs, step.outputs)
            mine.append(ahead.carry)
            if late >= 0:
                ready = now._replace(carry=mine[late])
                now, info = one.step(ready, xs[late, slot][None], y[None])
                found = jnp.stack([info.loss, info.gradient_norm, info.update_norm])
                assert_close(found, step.measures[:3])
                if not delay:  # the step that learns moves the state on with new parameters
                    mine[t + 1] = now.carry
    assert_close((now.network, now.opt_state), (state.learner.network, state.learner.opt_state))
    for slot in range(MEMBERS):
        assert_close(carries[slot][-1], place(state, slot)[0])


@pytest.mark.parametrize("delay", fast([2, 0]))
def test_a_member_that_starts_anew_equals_a_new_one_and_touches_no_other(delay):
    model, (xs, ys) = many(0.05, delay), data()
    state = model.init()
    for t in range(4):
        for slot in range(MEMBERS):
            state, _ = model.step(state, slot, xs[t, slot], ys[t, slot])
    # Member 0 starts anew in one state, and has never been in the other.
    blank = model.init()
    never = state._replace(
        learner=state.learner._replace(carry=_put(state.learner.carry, blank.learner.carry, 0)),
        pending=None if state.pending is None else _put(state.pending, blank.pending, 0),
        turn=state.turn.at[0].set(0),
    )
    one, two = copy_state(state), copy_state(never)
    for t in range(5):
        before = [place(one, slot) for slot in (1, 2, MEMBERS)]
        x, y, is_new, known = xs[t, 0], ys[max(t - delay, 0), 0], t == 0, t >= delay
        assert_same(model.advance(one, 0, x, is_new)[1], model.advance(two, 0, x)[1])
        one, first = model.step(one, 0, x, y, is_new, known)
        two, second = model.step(two, 0, x, y, known=known)
        assert_same(first, second)
        assert_same((shared(one), place(one, 0)), (shared(two), place(two, 0)))
        assert_same(before, [place(one, slot) for slot in (1, 2, MEMBERS)])


def _put(tree, other, slot):
    return jax.tree.map(lambda leaf, new: leaf.at[slot].set(new[slot]), tree, other)


@pytest.mark.full
def test_a_step_that_is_not_finite_is_refused():
    model, (xs, ys) = many(0.05), data()
    state = model.init()
    for slot in range(MEMBERS):
        state, _ = model.step(state, slot, xs[0, slot], ys[0, slot])
    before = copy_state(state)
    state, step = model.step(state, 2, xs[1, 2] * np.nan, ys[1, 2], is_new=True)
    assert step.measures[3] == 0 and state.learner.skipped == 1
    assert_same(before.learner.network, state.learner.network)
    assert_same([place(before, slot) for slot in (0, 1)], [place(state, slot) for slot in (0, 1)])
    assert_same(place(model.init(), 2), place(state, 2))  # it was to start anew, and has


def test_passing_moves_on_who_is_there_and_learns_nothing():
    model, (xs, ys) = many(0.05), data()
    state = model.init()
    for slot in range(MEMBERS):
        state, _ = model.step(state, slot, xs[0, slot], ys[0, slot])
    before = copy_state(state)
    after, _ = model.advance(state, 1, xs[1, 1])
    others = 0, 2, 3
    assert_same([place(before, slot) for slot in others], [place(after, slot) for slot in others])
    assert_same(shared(before), shared(after))
    assert not np.array_equal(before.learner.carry.h[1], after.learner.carry.h[1])


def test_members_beyond_memory_are_refused():
    model = ModelConfig("tiny")
    for options, message in (
        ({"members": 10_000_000}, r"members=10000000, .* room for \d+ members"),
        ({"members": 3, "delay": 10_000_000}, r"members=3, delay=10000000: .* room for 0 members"),
    ):
        with pytest.raises(ValueError, match=message + "; use fewer members, a shorter delay"):
            build_mixture(*resolve(model, Shape(3, (), 1, previous=False, **options)))


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["assign", "start", "reset", "leave", "save"]), st.integers(0, 5)),
    max_size=40,
)


@given(capacity=st.integers(1, 4), actions=ACTIONS)
def test_a_slot_table_is_its_definition(capacity, actions):
    """The definition: a list of (name, place, anew), the one that has been silent longest first."""
    table, there, counts = (
        SlotTable(capacity),
        [],
        dict.fromkeys(("joins", "evictions", "resets", "leaves"), 0),
    )
    for action, number in actions:
        name = f"m{number}"
        found = next((entry for entry in there if entry[0] == name), None)
        assert (name in table) == (found is not None) and table.find(name) == (
            found and tuple(found[1:])
        )
        if action == "save":
            restored = SlotTable(capacity)
            restored.restore(json.loads(json.dumps(table.to_json())))
            assert restored.to_json() == table.to_json()
            table = restored
        elif action in ("assign", "start"):
            others = [entry[1] for entry in there]
            slot = table.assign(name, reset=action == "start")
            if found is None:
                counts["joins"] += 1
                if len(there) == capacity:
                    assert slot.number == there.pop(0)[1]
                    counts["evictions"] += 1
                else:
                    assert slot.number not in others
                assert slot.is_new and 0 <= slot.number < capacity
            else:
                there.remove(found)
                counts["resets"] += action == "start" and not found[2]
                assert slot == (found[1], found[2] or action == "start")
            there.append([name, slot.number, False])
        elif found is None:
            with pytest.raises(KeyError, match=f"{name}.*{len(there)} members"):
                getattr(table, action)(name)
        elif action == "reset":
            table.reset(name)
            counts["resets"] += not found[2]
            found[2] = True
        else:
            assert table.leave(name) == found[1]
            there.remove(found)
            counts["leaves"] += 1
        assert list(table) == [entry[0] for entry in there] and len(table) == len(there)
    assert {name: table.counts[name] for name in counts} == counts


def test_a_full_slot_table_that_evicts_nobody_says_what_to_do():
    table = SlotTable(1, when_full="stop")
    table.assign("a")
    before = table.to_json()
    with pytest.raises(
        NoFreeSlotError, match=r"'b' is one member more than the 1 slots; raise --members"
    ):
        table.assign("b")
    assert table.to_json() == before
    table.leave("a")
    assert table.assign("b") == (0, True)
    with pytest.raises(ValueError, match="members=0"):
        SlotTable(0)


def streams():
    return Streams(Encoder([Column("x", "numeric")]), ClassTarget(10), SlotTable(2), delay=2)


def test_members_that_go_are_forgotten_and_the_rest_is_as_before():
    def run(actions):
        many = streams()
        for name, i, reset in actions:
            many.push(name, {"x": i}, str(i), reset=reset)
        return many

    rows = [("a", 0, False), ("b", 1, False), ("a", 2, False)]
    evicted = run([*rows, ("c", 3, False)])  # b has been silent longest
    assert list(evicted.table) == ["a", "c"] and evicted.table.counts["labels dropped"] == 1
    assert evicted.to_json()["streams"][0] == run(rows).to_json()["streams"][0]
    reset = run([*rows, ("a", 3, True)])
    assert reset.waiting[0].num_rows == 1 and reset.table.counts["labels dropped"] == 2
    reset.leave("b")
    assert 1 not in reset.waiting and reset.table.counts["labels dropped"] == 3
    other = streams()
    other.restore(json.loads(json.dumps(reset.to_json())))
    for many in (reset, other):
        many.push("b", {"x": 9}, "0")
    assert reset.to_json() == other.to_json()
    looked = reset.peek("new", {"x": 1.0})
    assert (looked.slot, looked.is_new) == (2, True) and "new" not in reset.table
