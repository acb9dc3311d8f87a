"""A traced step as a C function over the arrays of a context."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.extend.core as core
import numpy as np
from jax.interpreters import partial_eval

from foretrace._graph.step import Graph
from foretrace._native.emit import Emitter, number
from foretrace._native.expression import (
    Array,
    Load,
    Number,
    Value,
    c_type,
    contiguous,
    cost,
    loads,
    pool,
)
from foretrace._native.loops import Loop, simplified
from foretrace._native.lower import Lowering
from foretrace._native.lower_loops import SUMMING
from foretrace._native.lower_places import PLACING
from foretrace._native.lower_views import MOVING
from foretrace._native.schedule import Group, grouped, placed


class Leaf:
    """An array of the state.

    Args:
        name: name in the header of an export.
        value: value before the first step.
        twice: whether a step stores the next value separately, so that a refused step changes
            nothing.
    """

    def __init__(self, name: str, value: np.ndarray, twice: bool):
        self.name, self.value, self.twice = name, value, twice
        self.array = Array(value.size, value.dtype, "state", name)
        self.next = Array(value.size, value.dtype, "next", name)
        self.field = f"{pool(value.dtype)}_{'both' if twice else 'kept'}"
        self.offset = 0


class Layout:
    """Positions of the arrays of a state in a context.

    Args:
        leaves: the arrays, in the order of the graph.
    """

    def __init__(self, leaves: Sequence[Leaf]):
        self.leaves = list(leaves)
        self.sizes: Counter[str] = Counter()
        for leaf in self.leaves:
            leaf.offset = self.sizes[leaf.field]
            self.sizes[leaf.field] += leaf.value.size
        self._of = {leaf.array: leaf for leaf in self.leaves} | {
            leaf.next: leaf for leaf in self.leaves
        }

    def address(self, array: Array) -> str:
        """Return the pointer to an array of the state: `k_` constant, `s_` present, `n_` next."""
        leaf = self._of[array]
        kind = "n" if array.place == "next" else "s" if leaf.twice else "k"
        return _moved(f"{kind}_{pool(array.dtype)}", leaf.offset)


def _moved(pointer: str, offset: int) -> str:
    return f"({pointer} + {offset})" if offset else pointer


def first_layout(graph: Graph, accepted: int | None) -> Layout:
    """Return the layout of a graph's step, in which each new state has a separate place.

    Args:
        graph: traced step.
        accepted: index of the result that says whether the step is accepted; None if there is none.
    """
    jaxpr = graph.closed.jaxpr
    made, flag = _makers(jaxpr), None if accepted is None else jaxpr.outvars[accepted]
    states = zip(jaxpr.invars, jaxpr.outvars[len(graph.results) :], strict=False)
    return Layout(
        [
            Leaf(name, value, chosen(made, flag, *both) is not None)
            for (name, value), both in zip(graph.state.items(), states, strict=True)
        ]
    )


def _makers(jaxpr: Any) -> dict[Any, Any]:
    """Return, for each variable, the equation that computes it."""
    return {out: eqn for eqn in jaxpr.eqns for out in eqn.outvars}


def chosen(made: dict[Any, Any], flag: Any, old: Any, new: Any) -> Any:
    """Return the new value of a state that a refused step leaves unchanged; None otherwise."""
    eqn = _maker(made, new)
    if flag is None or eqn is None or eqn.primitive.name != "select_n" or len(eqn.invars) != 3:
        return None
    which, before, after = eqn.invars
    while (
        which is not flag
        and (eqn := _maker(made, which))
        and eqn.primitive.name in ("broadcast_in_dim", "reshape")
    ):
        which = eqn.invars[0]
    return after if which is flag and before is old else None


def _maker(made: dict[Any, Any], atom: Any) -> Any:
    """Return the equation that computes a variable; None for an argument or a number."""
    return None if isinstance(atom, core.Literal) else made.get(atom)


class Function(NamedTuple):
    """A step in C.

    Args:
        body: statements of the function.
        results: C text of each scalar result.
        work: number of elements of scratch memory, for each dtype.
        constants: arrays of known numbers that the function reads, by their C names.
    """

    body: list[str]
    results: dict[str, str]
    work: dict[str, int]
    constants: dict[str, Array]


def function(part: str, graph: Graph, layout: Layout, accepted: int | None = None) -> Function:
    """Return a traced step as C statements.

    Args:
        part: name of the function in C.
        graph: traced step with the states of the layout.
        layout: positions of the states.
        accepted: index of the result that says whether the step is accepted. None if every step is
            accepted.
    """
    jaxpr, front = graph.closed.jaxpr, len(graph.results)
    made, flag = _makers(jaxpr), None if accepted is None else jaxpr.outvars[accepted]
    wanted: dict[Any, Array] = {}
    news: list[tuple[Leaf, Any, bool]] = []
    states = zip(layout.leaves, jaxpr.invars, jaxpr.outvars[front:], strict=False)
    for leaf, old, new in states:
        after = chosen(made, flag, old, new) if leaf.twice else None
        if after is not None:
            _want(wanted, made, after, leaf.next)
            news.append((leaf, after, True))
        elif new is not old:
            news.append((leaf, new, False))
    results = dict(zip(graph.results, jaxpr.outvars, strict=False))
    outputs = {
        name: Array(math.prod(variable.aval.shape), variable.aval.dtype, "output", name)
        for name, variable in results.items()
        if variable.aval.shape
    }
    for name, array in outputs.items():
        _want(wanted, made, results[name], array)
    # Operations that only choose between the old and the new state are not part of the program.
    ends = [*results.values(), *(variable for _, variable, _ in news)]
    step, _ = partial_eval.dce_jaxpr(jaxpr.replace(outvars=ends), [True] * len(ends), True)
    arguments = [
        *(leaf.array for leaf in layout.leaves),
        *(
            Array(math.prod(shape.shape), shape.dtype, "input", name)
            for name, shape in graph.data.items()
        ),
    ]
    lowering = Lowering(step, graph.closed.consts, arguments, wanted, MOVING | SUMMING | PLACING)
    numbers: dict[str, Value] = {}
    for name, variable in results.items():
        value = lowering.read(variable)
        if name in outputs:
            lowering.stored(value, outputs[name])
        elif isinstance(value.expression, Number):
            numbers[name] = value
        else:
            numbers[name] = lowering.stored(value, Array(1, variable.aval.dtype, "scratch"))
    last: list[Loop] = []
    for leaf, variable, beside in news:
        value = lowering.read(variable)
        if beside:
            lowering.stored(value, leaf.next)
        else:
            last.append(_late(lowering, leaf, value))
    read_later = [array for loop in last for array in loop.reads]
    read_later += [load.array for value in numbers.values() for load in loads(value.expression)]
    loops = _read(lowering.loops, read_later)
    groups = [*grouped(loops, read_later), *(Group((loop,), frozenset()) for loop in last)]
    offsets = placed(groups)
    names = {array: f"{part}_numbers{place}" for place, array in enumerate(_constants(groups))}

    def address(array: Array) -> str:
        if array.place in ("state", "next"):
            return layout.address(array)
        if array.place == "constant":
            return names[array]
        if array.place in ("input", "output"):
            return array.name
        return _moved(f"w_{pool(array.dtype)}", offsets[array])

    emitter = Emitter(address)
    body = [line for group in groups for line in emitter.group(group)]
    found = {name: emitter.text(value.expression, [], {}) for name, value in numbers.items()}
    work: dict[str, int] = {}
    for array, offset in offsets.items():
        work[pool(array.dtype)] = max(work.get(pool(array.dtype), 0), offset + array.size)
    constants = {name: array for array, name in names.items()}
    return Function([*emitter.declarations(), *body], found, work, constants)


def _want(wanted: dict[Any, Array], made: dict[Any, Any], variable: Any, array: Array) -> None:
    """Request that a variable, or the variable that it reshapes, is stored in an array."""
    while (eqn := _maker(made, variable)) and eqn.primitive.name in (
        "reshape",
        "squeeze",
        "expand_dims",
    ):
        variable = eqn.invars[0]
    if eqn is not None:
        wanted.setdefault(variable, array)


def _read(loops: Sequence[Loop], later: Sequence[Array]) -> list[Loop]:
    """Return the loops whose array is read.

    Args:
        loops: loops in their order.
        later: arrays that are read after all loops.
    """
    found, read = [], set(later)
    for loop in reversed(loops):
        if loop.target.array.place != "scratch" or loop.target.array in read:
            found.append(loop)
            read.update(loop.reads)
    return found[::-1]


def _late(lowering: Lowering, leaf: Leaf, value: Value) -> Loop:
    """Return the loop that overwrites a state after its last reader."""
    reads_state = any(load.array.place == "state" for load in loads(value.expression))
    if cost(value.expression) or reads_state:
        # The place of the next value of a state is free while no step runs.
        beside = leaf.next if leaf.twice else Array(leaf.value.size, leaf.value.dtype, "scratch")
        value = lowering.stored(value, beside)
    target = contiguous(leaf.array, value.shape)
    assert isinstance(target, Load)
    return simplified(Loop(target, value.expression, value.shape))


def _constants(groups: Sequence[Group]) -> list[Array]:
    read = (array for group in groups for loop in group.loops for array in loop.reads)
    return list(dict.fromkeys(array for array in read if array.place == "constant"))


def constant_text(name: str, value: np.ndarray) -> str:
    """Return the C definition of an array of numbers."""
    numbers = ", ".join(number(one, value.dtype) for one in value.ravel())
    return f"static const {c_type(value.dtype)} {name}[{value.size}] = {{{numbers}}};"
