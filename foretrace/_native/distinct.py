"""Removal of repeated equations from a graph."""

from collections.abc import Sequence
from typing import Any

import jax.extend.core as core
import numpy as np

from foretrace._graph.step import Graph


def distinct(graph: Graph) -> Graph:
    """Return a graph without repeated equations, and without operations that do nothing.

    For other formats, the programs that run the graph do this.
    """
    same: dict[Any, Any] = {}
    first: dict[Any, Any] = {}

    def name(atom: Any) -> Any:
        return atom if isinstance(atom, core.Literal) else same.get(atom, atom)

    jaxpr, eqns = graph.closed.jaxpr, []
    for eqn in jaxpr.eqns:
        atoms = [name(atom) for atom in eqn.invars]
        if (alias := _alias(eqn.primitive.name, atoms)) is not None:
            same[eqn.outvars[0]] = alias
            continue
        operands = tuple(
            (str(a.aval), repr(a.val)) if isinstance(a, core.Literal) else a for a in atoms
        )
        key = (eqn.primitive.name, operands, str(eqn.params))
        if key in first:
            same |= dict(zip(eqn.outvars, first[key], strict=True))
        else:
            first[key] = eqn.outvars
            eqns.append(eqn.replace(invars=atoms))
    jaxpr = jaxpr.replace(eqns=eqns, outvars=[name(atom) for atom in jaxpr.outvars])
    return graph._replace(closed=graph.closed.replace(jaxpr=jaxpr))


def _alias(name: str, atoms: Sequence[Any]) -> Any:
    """Return the operand if an operation does not change it; None otherwise."""
    if name == "select_n" and len({id(atom) for atom in atoms[1:]}) == 1:
        return atoms[1]
    if name == "and":
        known = [
            isinstance(atom, core.Literal) and atom.val is not None and bool(np.all(atom.val))
            for atom in atoms
        ]
        if any(known) and atoms[0].aval.dtype == np.bool_:
            return atoms[1 - known.index(True)]
    return None
