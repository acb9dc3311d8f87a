"""Fusion of loops over the same range, and memory for arrays that are used by several loops."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from foretrace._native.expression import Array, loads
from foretrace._native.loops import Loop

MAX_TOGETHER = 32
"""Maximum number of fused loops. More would not fit into the registers of a processor."""


class Group(NamedTuple):
    """Loops that are fused.

    Args:
        loops: the loops, in the order of their statements.
        inner: arrays that only these loops use. Each becomes a variable inside the fused loop.
    """

    loops: tuple[Loop, ...]
    inner: frozenset[Array]


def grouped(loops: Sequence[Loop], read_later: Iterable[Array] = ()) -> list[Group]:
    """Return loops in groups that have the same range and share arrays, in a valid order.

    Args:
        loops: loops, in an order in which they can run.
        read_later: arrays that are read after all loops.
    """
    writers = _writers(loops)
    needs = [_needs(place, loop, loops, writers) for place, loop in enumerate(loops)]
    left, done = list(range(len(loops))), set[int]()
    found: list[list[int]] = []
    while left:
        group = [left[0]]
        if _extent(loops[left[0]]) is not None:
            for place in left[1:]:
                if len(group) == MAX_TOGETHER:
                    break
                if _fits(place, group, loops, needs[place], done):
                    group.append(place)
        chosen = set(group)
        left = [place for place in left if place not in chosen]
        done |= chosen
        found.append(group)
    readers = _readers(loops)
    for array in read_later:
        readers[array].append(len(loops))
    return [
        Group(
            tuple(loops[place] for place in group),
            frozenset(_inner(group, loops, readers, writers)),
        )
        for group in found
    ]


def _writers(loops: Sequence[Loop]) -> dict[Array, list[int]]:
    found: dict[Array, list[int]] = defaultdict(list)
    for place, loop in enumerate(loops):
        found[loop.target.array].append(place)
    return found


def _readers(loops: Sequence[Loop]) -> dict[Array, list[int]]:
    found: dict[Array, list[int]] = defaultdict(list)
    for place, loop in enumerate(loops):
        for array in loop.reads:
            found[array].append(place)
    return found


def _needs(
    place: int, loop: Loop, loops: Sequence[Loop], writers: dict[Array, list[int]]
) -> set[int]:
    """Return the loops that must run before a loop."""
    found = {other for array in loop.reads for other in writers.get(array, ()) if other < place}
    for other in writers[loop.target.array]:
        # Parts of an array may be written in any order. Writes over existing elements keep this
        # order.
        if other < place and (
            loop.combine in ("add", "put") or loop.target.picks or _writes_all(loops[other])
        ):
            found.add(other)
    return found


def _writes_all(loop: Loop) -> bool:
    return int(np.prod(loop.kept)) == loop.target.array.size


def _extent(loop: Loop) -> tuple[int, ...] | None:
    """Return the range in which a loop can be fused with others; None if it cannot be fused."""
    if loop.combine == "store" and not loop.target.picks:
        return loop.kept
    if loop.combine in ("sum", "and") and not loop.kept:
        return loop.reduced
    return None


def _fits(
    place: int,
    group: list[int],
    loops: Sequence[Loop],
    needs: set[int],
    done: set[int],
) -> bool:
    loop = loops[place]
    if _extent(loop) != _extent(loops[group[0]]) or _extent(loop) is None:
        return False
    inside = needs & set(group)
    if needs - done - inside:
        return False
    together = [loops[other] for other in group]
    if not _related(loop, together):
        return False
    written = {one.target.array: one for one in together}
    for load in loads(loop.expression):
        targets = [one for one in together if one.target.array is load.array]
        if targets and not any(one.combine == "store" and one.target == load for one in targets):
            return False
    # An array with computed positions must not be read while it is written.
    return all(index.array not in written for index in loads(loop.expression) if index.picks)


def _related(loop: Loop, together: Iterable[Loop]) -> bool:
    mine = {*loop.reads, loop.target.array}
    return any(mine & {*other.reads, other.target.array} for other in together)


def _inner(
    group: list[int],
    loops: Sequence[Loop],
    readers: dict[Array, list[int]],
    writers: dict[Array, list[int]],
) -> Iterable[Array]:
    """Yield the arrays that are used only inside one group, element by element."""
    members = set(group)
    if _extent(loops[group[0]]) is None:
        return
    for place in group:
        array = loops[place].target.array
        if (
            array.place != "scratch"
            or array.size == 1
            or loops[place].combine != "store"
            or len(writers[array]) > 1
        ):
            continue
        if set(readers.get(array, ())) <= members and array.size == int(np.prod(loops[place].kept)):
            yield array


def placed(groups: Sequence[Group]) -> dict[Array, int]:
    """Return the offset of each scratch array of more than one element, by dtype.

    An array occupies its memory from the first group that writes it to the last group that reads
    it. The largest arrays are placed first, each at the lowest offset that is free during this
    time.
    """
    first, last = _lifetimes(groups)
    spans: dict[np.dtype, list[tuple[int, int, int, int]]] = defaultdict(list)
    found: dict[Array, int] = {}
    for array in sorted(first, key=lambda one: (-one.size, first[one])):
        begin, end = first[array], last[array]
        busy = sorted(
            (low, high) for low, high, a, b in spans[array.dtype] if a <= end and begin <= b
        )
        offset = 0
        for low, high in busy:
            if offset + array.size <= low:
                break
            offset = max(offset, high)
        spans[array.dtype].append((offset, offset + array.size, begin, end))
        found[array] = offset
    return found


def _lifetimes(groups: Sequence[Group]) -> tuple[dict[Array, int], dict[Array, int]]:
    first: dict[Array, int] = {}
    last: dict[Array, int] = {}
    for time, group in enumerate(groups):
        for loop in group.loops:
            for array in (loop.target.array, *loop.reads):
                if array.place == "scratch" and array.size > 1 and array not in group.inner:
                    first.setdefault(array, time)
                    last[array] = time
    return first, last
