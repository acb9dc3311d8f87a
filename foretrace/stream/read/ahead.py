"""Columns whose values are known in advance: each row gets the next values of its member.

   promo      value of the row
    promo+k    value of the k-th later row of the same member; None if there is none
    promo+k    value of the k-th row after it, of the same member; None if there is none

For this, the rows of a source are read ahead. Its last rows without a target are future rows. Their
known values are used, and they are not yielded.
"""

import dataclasses
from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

from foretrace.stream.read.lines import Position, Row, SourceError
from foretrace.stream.read.values import check_number, is_missing, member_text

TO_COME = 1000
"""Number of further rows that are read to find the next target of a member."""


class _Read(NamedTuple):
    """A row that was read, with the following rows of its member."""

    row: Row
    position: Position
    member: Any
    later: list[Row]


@dataclasses.dataclass(frozen=True)
class Ahead:
    """Give each row the values that some columns have in the next rows.

    Args:
        columns: columns whose values are known in advance.
        horizon: number of next rows whose values are added.
        member: column with the member of a row. Default: all rows are of one stream.
        target: column of the target. The last rows without a target are future rows. Default: there
            are no future rows.
        members: number of members whose rows are read ahead.

    >>> rows = Ahead(["promo"], 2, target="y").rows
    >>> read = [({"y": 1, "promo": 0}, Position(1)), ({"y": None, "promo": 5}, Position(2))]
    >>> [row for row, _ in rows(iter(read))]
    [{'y': 1, 'promo': 0, 'promo+1': 5, 'promo+2': None}]
    """

    columns: Sequence[Hashable]
    horizon: int
    member: str | None = None
    target: str | None = None
    members: int = 1

    @cached_property
    def places(self) -> dict[str, tuple[int, Hashable]]:
        """Number of rows ahead, from 0, and column of each added value, by the value's name."""
        pairs = product(range(self.horizon), self.columns)
        return {f"{name}+{k + 1}": (k, name) for k, name in pairs}

    def check(self, row: Mapping[Any, Any]) -> None:
        """Raise a ValueError if a known value is no number, or the name of a column is taken."""
        for name in self.columns:
            check_number(row.get(name), str(name))
        self._check_names(row)

    def _check_names(self, row: Mapping[Any, Any]) -> None:
        if twice := self.places.keys() & row.keys():
            raise SourceError(f"column {min(twice)!r} has the name of a known value; rename it")

    def row(self, row: Mapping[Any, Any], later: Sequence[Mapping[Any, Any]]) -> dict[Any, Any]:
        """Return a row with the values of the following rows."""
        there, places = len(later), self.places.items()
        found = {name: later[k].get(own) if k < there else None for name, (k, own) in places}
        return {**row, **found}

    def rows(self, rows: Iterator[tuple[Row, Position]]) -> Iterator[tuple[Row, Position]]:
        """Yield rows with their positions. Future rows at the end are not yielded.

        At most `horizon * members` rows are read ahead. If they contain fewer than `horizon`
        further rows of a row's member, the row is yielded without the missing values.

        Raises:
            SourceError: a column has the name of an added value.
        """
        waiting: deque[_Read] = deque()
        newest: dict[Any, deque[_Read]] = {}  # the last rows of each member that has a waiting row
        labelled: dict[Any, int] = {}  # for each of these members, the last row with a target

        most = self.horizon * self.members

        def is_row(one: _Read) -> bool:
            return one.position.row <= labelled.get(one.member, 0)

        def is_due(one: _Read) -> bool:
            more = len(waiting) - most
            return is_row(one) and (len(one.later) == self.horizon or more > 0) or more > TO_COME

        for row, position in rows:
            self._check_names(row)
            member = None if self.member is None else member_text(row.get(self.member))
            own = newest.setdefault(member, deque(maxlen=self.horizon))
            for one in own:
                if position.row - one.position.row <= most:  # wherever reading began
                    one.later.append(row)
            waiting.append(_Read(row=row, position=position, member=member, later=[]))
            own.append(waiting[-1])
            if self.target is None or not is_missing(row.get(self.target)):
                labelled[member] = position.row
            # The values of a torn row may be incomplete, so it is used only as a row after a
            # checkpoint.
            while waiting and is_due(waiting[0]) and not position.is_torn:
                one = waiting.popleft()
                if newest[one.member][-1] is one:
                    del newest[one.member]
                    labelled.pop(one.member, None)
                yield self.row(one.row, one.later), one.position
        for one in waiting:
            if is_row(one):
                # The file may grow, so the following rows may still arrive.
                yield self.row(one.row, one.later), one.position._replace(is_torn=True)
