"""Many streams share a network: each remembers as if alone, and all learn as one batch."""

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
from foretrace._experts.recurrent import Recurrent, read_measures
from foretrace._rows.encode import Encoder
from foretrace._rows.schema import Column
from foretrace._rows.slots import NoFreeSlotError, SlotTable
from foretrace._rows.streams import Streams
from foretrace._rows.target import ClassTarget
from foretrace.stream._saved import copy_state

pytestmark = [pytest.mark.exact, pytest.mark.usefixtures("standard_promotion")]
MEMBERS, STEPS = 3, 8
MADE = {}


def learner(rate, batch_size=None, rule=ft.ONLINE):
    network = ft.Network(
        2, 2, model_size=4, depth=2, cell=ft.LRU.factory(state_size=3), key=jax.random.key(0)
    )
    loss = ft.losses.squared_error
    return ft.Learner(
        network, rule=rule, optimizer=optax.adam(rate), loss=loss, batch_size=batch_size
    )


class Compiled:
    """A network for members, or for one stream, its methods compiled."""

    def __init__(self, one, members=MEMBERS, delay=0):
        self.network = Recurrent(one, slots=members, delay=delay)
        self.init, self.members, self.together = self.network.init, members, one.batch_size or 1
        self._step, self._advance = jax.jit(self.network.step), jax.jit(self.network.advance)

    def step(self, state, slots, is_new, xs, ys, mask):
        return self._step(
            state, np.asarray(xs), np.asarray(ys), np.asarray(mask), np.asarray(slots), is_new
        )

    def advance(self, state, slots, is_new, xs):
        return self._advance(state, np.asarray(xs), np.asarray(slots), is_new)

    def predict(self, *arguments):
        return self.advance(*arguments)[1]


def many(rate, together=1, delay=0, members=MEMBERS):
    """Return the same learner for the same arguments: compiled once."""
    key = rate, together, delay, members
    if key not in MADE:
        one = learner(rate, None if together == 1 else together)
        MADE[key] = Compiled(one, members, delay)
    return MADE[key]


def data(seed=0, steps=STEPS, members=MEMBERS):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(steps, members, 2)), rng.normal(size=(steps, members, 2))


def padded(model, slots, xs, ys, is_new=(), mask=None):
    """Fill a step up with missing rows."""
    size, there = model.together, len(slots)
    out = (
        np.full(size, model.members, np.int32),
        np.zeros(size, bool),
        np.zeros((size, 2)),
        np.zeros((size, 2)),
    )
    for i, slot in enumerate(slots):
        out[0][i], out[1][i], out[2][i], out[3][i] = slot, slot in is_new, xs[i], ys[i]
    return *out, np.arange(size) < there if mask is None else np.asarray(mask)


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


def orders():
    """Groups of distinct members in any order: 0 1 2 is a full step, 1 has two missing rows."""
    return st.lists(
        st.lists(st.integers(0, MEMBERS - 1), min_size=1, max_size=MEMBERS, unique=True),
        max_size=STEPS,
    )


@pytest.mark.full
@pytest.mark.parametrize(("together", "delay"), fast([(3, 2), (1, 0), (1, 2), (3, 0)]))
@given(groups=orders())
def test_each_member_remembers_as_if_it_were_alone(together, delay, groups):
    model, alone = (
        many(0.0, together, delay),
        MADE.setdefault(delay, Compiled(learner(0.0), None, delay)),
    )
    xs, ys = data()
    state, outputs, rows = model.init(), [[] for _ in range(MEMBERS)], [0] * MEMBERS
    if together == 1:
        groups = [[slot] for group in groups for slot in group]
    for group in groups:
        if max(rows) >= STEPS:
            break
        x, y = ([values[rows[slot], slot] for slot in group] for values in (xs, ys))
        state, step = model.step(state, *padded(model, group, x, y))
        for i, slot in enumerate(group):
            outputs[slot].append(np.asarray(step.outputs)[i])
            rows[slot] += 1
    for slot in range(MEMBERS):
        one = alone.init()
        for t in range(rows[slot]):
            row = xs[t, slot][None], ys[t, slot][None], np.ones(1, bool)
            one, step = alone.step(one, np.zeros(1, np.int32), np.zeros(1, bool), *row)
            assert_close(step.outputs[0], outputs[slot][t])
        assert_close(one.learner.carry, place(state, slot)[0])
    assert_same(place(state, MEMBERS), place(model.init(), MEMBERS))


@pytest.mark.parametrize(("delay", "credit"), fast([(2, 0), (0, 0), (2, 2)]))
def test_members_in_lock_step_are_a_batch(delay, credit):
    rule = ft.ONLINE.with_depth(credit)
    model = Compiled(learner(0.05, 3, rule), delay=delay) if credit else many(0.05, 3, delay)
    batch = learner(0.05, 3, rule)
    xs, ys = map(jnp.asarray, data())
    state, one, carries = model.init(), batch.init(), []
    slots = np.array([2, 0, 1], np.int32)
    for t in range(STEPS):
        carries.append(one.carry)
        outputs, ahead = batch.predict(one, xs[t][:, None])
        late = t - delay
        mask = np.full(3, late >= 0)
        state, step = model.step(state, slots, np.zeros(3, bool), xs[t], ys[max(late, 0)], mask)
        if late >= 0:
            learned, info = batch.step(
                one._replace(carry=carries[late]), xs[late][:, None], ys[late][:, None]
            )
            one = learned._replace(carry=ahead.carry)
            assert_close(
                jnp.stack([info.loss, info.gradient_norm, info.update_norm]), step.measures[:3]
            )
        else:
            one = ahead
        assert_close(outputs[:, 0], step.outputs)
    assert_close((one.network, one.opt_state), (state.learner.network, state.learner.opt_state))
    assert_close(
        one.carry, jax.tree.map(lambda leaf: jnp.swapaxes(leaf[slots], 0, 1), state.learner.carry)
    )


@pytest.mark.full
@pytest.mark.parametrize("delay", fast([2, 0]))
def test_missing_rows_and_rows_without_a_label_do_not_dilute_the_gradient(delay):
    xs, ys = data()
    found = []
    for together, labelled in ((3, 1), (3, 2), (1, 1)):
        model = many(0.05, together, delay)
        state = model.init()
        for t in range(STEPS):
            # Member 1 is there without a label in the second case, missing in the first.
            slots = [0, 1][:labelled] if together > 1 else [0]
            mask = (np.arange(together) == 0) & (t >= delay)
            state, step = model.step(state, *padded(model, slots, xs[t], ys[t], mask=mask))
            found.append(step.measures)
        found.append(shared(state))
    size = len(found) // 3
    assert_close(found[:size], found[size : 2 * size])
    assert_close(found[:size], found[2 * size :])


@pytest.mark.parametrize(("together", "delay"), fast([(3, 2), (1, 0), (1, 2), (3, 0)]))
def test_a_member_that_starts_anew_equals_a_new_one_and_touches_no_other(together, delay):
    model, (xs, ys) = many(0.05, together, delay), data()
    state = model.init()
    for t in range(4):
        for slot in range(MEMBERS):
            state, _ = model.step(state, *padded(model, [slot], xs[t, [slot]], ys[t, [slot]]))
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
        mask = np.arange(together) == 0 if t >= delay else np.zeros(together, bool)
        rows = xs[t, [0]], ys[max(t - delay, 0), [0]]
        assert_same(
            model.predict(one, *padded(model, [0], *rows, is_new=[0] if not t else ())[:3]),
            model.predict(two, *padded(model, [0], *rows)[:3]),
        )
        one, first = model.step(
            one, *padded(model, [0], *rows, is_new=[0] if not t else (), mask=mask)
        )
        two, second = model.step(two, *padded(model, [0], *rows, mask=mask))
        assert_same(first, second)
        assert_same((shared(one), place(one, 0)), (shared(two), place(two, 0)))
        assert_same(before, [place(one, slot) for slot in (1, 2, MEMBERS)])


def _put(tree, other, slot):
    return jax.tree.map(lambda leaf, new: leaf.at[slot].set(new[slot]), tree, other)


def test_what_missing_rows_hold_reaches_nothing():
    model, (xs, ys) = many(0.05, 3, 2), data()
    clean, other = model.init(), model.init()
    for t in range(STEPS):
        slots, is_new, x, y, mask = padded(model, [1], [xs[t, 1]], [ys[t, 1]])
        clean, _ = model.step(clean, slots, is_new, x, y, mask & (t >= 2))
        x[1:], y[1:] = np.nan, np.nan
        other, _ = model.step(other, slots, is_new, x, y * 0 + np.nan_to_num(y), mask & (t >= 2))
    assert_same(shared(clean)[:2], shared(other)[:2])
    for slot in range(MEMBERS):
        assert_same(place(clean, slot), place(other, slot))


@pytest.mark.full
def test_a_step_that_is_not_finite_is_refused_for_all_of_its_rows():
    model, (xs, ys) = many(0.05, 3, 0), data()
    state, _ = model.step(model.init(), *padded(model, [0, 1, 2], xs[0], ys[0]))
    before = copy_state(state)
    xs[1, 1] = np.nan
    state, step = model.step(state, *padded(model, [0, 1, 2], xs[1], ys[1], is_new=[2]))
    assert read_measures(step.measures).accepted == 0 and state.learner.skipped == 1
    assert_same(before.learner.network, state.learner.network)
    assert_same([place(before, slot) for slot in (0, 1)], [place(state, slot) for slot in (0, 1)])
    assert_same(place(model.init(), 2), place(state, 2))  # it was to start anew, and has


def test_passing_moves_on_who_is_there_and_learns_nothing():
    model, (xs, ys) = many(0.05, 3), data()
    state, _ = model.step(model.init(), *padded(model, [0, 1, 2], xs[0], ys[0]))
    before = copy_state(state)
    arguments = padded(model, [1], xs[1], ys[1])[:3]
    outputs = model.predict(state, *arguments)
    after, again = model.advance(state, *arguments)
    assert_same(outputs, again)
    assert_same(
        [place(before, slot) for slot in (0, 2, 3)], [place(after, slot) for slot in (0, 2, 3)]
    )
    assert_same(shared(before), shared(after))
    assert not np.array_equal(before.learner.carry.h[1], after.learner.carry.h[1])


def test_members_beyond_memory_are_refused():
    with pytest.raises(
        ValueError, match=r"members=10000000: .* at most 1024 MiB .* there is room for \d+ members"
    ):
        many(0.0, members=10_000_000)
    with pytest.raises(ValueError, match=r"members=3, delay=10000000: .* room for 0 members"):
        many(0.0, delay=10_000_000)
    with pytest.raises(ValueError, match="members=2 must be at least together=3"):
        many(0.0, 3, members=2)


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
