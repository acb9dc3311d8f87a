"""Members of a stream: who has which slot, what waits for them, and how many there may be."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace._experts.shape import Shape
from foretrace._rows.encode import Encoder
from foretrace._rows.schema import Column
from foretrace._rows.slots import NoFreeSlotError, SlotTable
from foretrace._rows.streams import Streams
from foretrace._rows.target import ClassTarget
from foretrace.stream._model import build_mixture, resolve
from foretrace.stream._model_config import ModelConfig

pytestmark = [pytest.mark.exact, pytest.mark.usefixtures("standard_promotion")]


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
