"""Run one cell over a chunk of one stream, and update its sensitivity."""

import jax
from jax import lax

from foretrace._cells.abstract import AbstractCell, Coefficients
from foretrace._recurrence.chunk import Carry
from foretrace._recurrence.sensitivity import advance, attach, init_sensitivity
from foretrace._recurrence.unroll import unroll
from foretrace._rule import LearningRule
from foretrace._types import Array, Bool, Float, States


def run_cell(
    cell: AbstractCell,
    theta: Coefficients,
    carry: Carry | None,
    zs: Float[Array, "C I"],
    reset: Bool[Array, "C"] | None,
    *,
    rule: LearningRule,
    return_carry: bool,
    differentiate_carry: bool,
) -> tuple[States, Carry | None]:
    """Return the readout's inputs at each step, and the carry after the chunk.

    Args:
        cell: the recurrence.
        theta: coefficients of the cell.
        carry: state and sensitivity before the chunk; None starts a sequence.
        zs: inputs of the cell.
        reset: steps that start an episode.
        rule: learning rule, which says which paths are differentiated.
        return_carry: whether the carry after the chunk is computed.
        differentiate_carry: whether the states before and after the chunk are differentiated.
    """
    h, e = (cell.init_state(), None) if carry is None else (carry.h, carry.e)
    h = h if differentiate_carry else lax.stop_gradient(h)
    # The past of the chunk enters as a linearisation: h + e (theta - stop_gradient(theta)).
    before = h if e is None else attach(h, e, theta)
    hs, emitted = unroll(cell, theta, before, zs, rule, reset)
    if not return_carry:
        return emitted, None
    last = jax.tree.map(lambda leaf: leaf[-1], hs)
    if differentiate_carry:
        # The next part of the sequence is differentiated through this state.
        return emitted, Carry(last, None)
    # A sequence that starts here has a sensitivity of zero, which is updated but was not attached.
    e = init_sensitivity(cell, rule) if e is None else e
    after = None if e is None else advance(cell, theta, h, e, zs, hs, rule, reset)
    return emitted, Carry(lax.stop_gradient(last), lax.stop_gradient(after))
