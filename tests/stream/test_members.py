"""Members of a stream: who has which slot, and how many there may be."""

import json
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foretrace.stream.read.slots import SlotTable

pytestmark = [pytest.mark.exact, pytest.mark.usefixtures("standard_promotion")]


ACTIONS = st.tuples(
    st.sampled_from(["assign", "start", "reset", "leave", "save"]), st.integers(0, 5)
)


@given(st.integers(1, 4), st.lists(ACTIONS, max_size=40))
@example(1, [("assign", 0), ("assign", 1), ("leave", 0), ("assign", 1)])
@example(2, [("assign", 0), ("assign", 1), ("assign", 0), ("assign", 2)])
def test_a_slot_table_is_its_definition(capacity, actions):
    """The definition: a list of (name, place, anew), the one that has been silent longest first."""
    table, there, counts = SlotTable(capacity), [], Counter()
    for action, number in actions:
        name = f"m{number}"
        found = next((entry for entry in there if entry[0] == name), None)
        assert (name in table) == (found is not None)
        assert table.find(name) == (found and tuple(found[1:]))
        before = table.to_json()
        if action == "save":
            table = SlotTable(capacity)
            table.restore(json.loads(json.dumps(before)))
            assert table.to_json() == before
        elif action in ("assign", "start") and found is not None:
            there.remove(found)
            counts["resets"] += action == "start" and not found[2]
            assert table.assign(name, reset=action == "start") == (
                found[1],
                found[2] or action == "start",
            )
            there.append([name, found[1], False])
        elif action in ("assign", "start"):
            slot, is_full = table.assign(name, reset=action == "start"), len(there) == capacity
            counts["joins"] += 1
            counts["evictions"] += is_full
            free = [there.pop(0)[1]] if is_full else {*range(capacity)} - {one[1] for one in there}
            assert slot.is_new and slot.number in free
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
        assert list(table.members) == [entry[0] for entry in there] and len(table) == len(there)
    assert +Counter(table.counts) == +counts
