"""Axis letters and array aliases. Every shape in the package is written in these letters.

| letter | axis |
|---|---|
| `T` | time, a whole sequence |
| `C` | time inside one chunk |
| `B` | batch: independent streams |
| `D` | depth: stacked blocks |
| `H` | features of the model (`model_size`) |
| `N` | modules of a recurrent layer (`state_size`) |
| `I` | inputs of a cell or a network |
| `O` | outputs of a network |

A plural name (`xs`, `hs`) has a time axis in front; a singular name does not.
"""

from typing import TYPE_CHECKING, Any, TypeAlias

from jaxtyping import Array as Array
from jaxtyping import Bool as Bool
from jaxtyping import Complex as Complex
from jaxtyping import Float as Float
from jaxtyping import Inexact as Inexact
from jaxtyping import Int as Int
from jaxtyping import Key
from jaxtyping import PRNGKeyArray as PRNGKeyArray
from jaxtyping import PyTree as PyTree
from jaxtyping import UInt32 as UInt32

if TYPE_CHECKING:
    # jaxtyping hides PyTree from type checkers on purpose; in the public interface it would be an
    # unknown type.
    State: TypeAlias = Any
    Stack: TypeAlias = Any
    States: TypeAlias = Any
    Sensitivity: TypeAlias = Any
    Inputs: TypeAlias = Any
    Arrays: TypeAlias = Any
else:
    State = PyTree[Inexact[Array, "N"]]
    """State of a layer: one leaf of shape (N,) for each state dimension of a module."""

    Stack = PyTree[Inexact[Array, "..."]]
    """States of all layers."""

    States = PyTree[Inexact[Array, "C N"]]
    """States of a layer over a chunk."""

    Sensitivity = PyTree[Inexact[Array, "..."]]
    """Derivative of a state by the coefficients (eligibility trace): a tree for each state leaf."""

    Inputs = PyTree[Float[Array, "C ..."]]
    """Inputs of a chunk, in the form that a cell takes."""

    Arrays = PyTree[Array]
    """Any tree of arrays."""

Pair = tuple[Inexact[Array, "N"], Inexact[Array, "N"]]
"""Two numbers for every module: a state of two dimensions, or decay and drive."""
Mask = Bool[Array, "*C"] | Float[Array, "*C"]
"""Weight of each step's loss, or whether the step counts."""

Keys = PRNGKeyArray | Key[Array, "B"]
"""A PRNG key, or a PRNG key for each stream."""
