"""Values that are known in advance: against their definition, and at a torn end of a file."""

import numpy as np
import pytest

from foretrace.stream.read.ahead import Ahead
from foretrace.stream.read.lines import Position

ROWS, HORIZON = 60, 3


def table(torn=False):
    """Return rows of three members in any order, with their positions; the last have no target."""
    draw = np.random.default_rng(0)
    rows = [
        {"who": str(draw.integers(3)), "promo": i, "y": i if i < ROWS - 9 else None}
        for i in range(ROWS)
    ]
    return [(row, Position(i, is_torn=torn and i == ROWS)) for i, row in enumerate(rows, 1)]


@pytest.mark.parametrize("member", [None, "who"])
def test_known_values_are_those_of_the_next_rows_of_the_member_in_the_file(member):
    read, members = table(), 3 if member else 1
    ahead = Ahead(["promo"], HORIZON, member, "y", members)
    found = list(ahead.rows(iter(read)))
    assert [position.row for _, position in found] == [*range(1, ROWS - 8)]
    for row, position in found:
        near = read[position.row : position.row + HORIZON * members]
        later = [one["promo"] for one, _ in near if member is None or one["who"] == row["who"]]
        expected = [*later, *[None] * HORIZON][:HORIZON]
        assert [row[f"promo+{k + 1}"] for k in range(HORIZON)] == expected


def test_rows_that_know_values_of_a_torn_line_are_behind_the_checkpoint():
    """Its values may be incomplete: `1` may be the beginning of `17`."""
    read = [(row | {"y": 1}, position) for row, position in table(torn=True)]
    found = list(Ahead(["promo"], HORIZON).rows(iter(read)))
    assert [position.is_torn for _, position in found] == [False] * (ROWS - 4) + [True] * 4
    assert found[-4][0]["promo+3"] == ROWS - 1
