"""Which elements a gather reads, or a scatter writes."""

from typing import Any, NamedTuple

_OF_GATHER = "offset_dims collapsed_slice_dims start_indices_batching_dims start_index_map".split()
_OF_SCATTER = """
update_window_dims inserted_window_dims scatter_indices_batching_dims scatter_dims_to_operand_dims
""".split()
"""Names in JAX for the axes of windows, of single elements, and of the indices."""


class Picking(NamedTuple):
    """Axes of a gather or scatter: of the array that it reads or writes, and of the elements.

    Args:
        window: axes of the elements that correspond to whole axes of the array.
        whole: these axes of the array.
        batching: axes of the array that the elements share with the indices.
        indices_batching: these axes of the indices.
        index_map: axis of the array that each index refers to.
        sizes: size of a window along each axis of the array.
    """

    window: tuple[int, ...]
    whole: tuple[int, ...]
    batching: tuple[int, ...]
    indices_batching: tuple[int, ...]
    index_map: tuple[int, ...]
    sizes: tuple[int, ...]


def picking(eqn: Any) -> Picking:
    """Return the axes of a gather or a scatter."""
    numbers, shape = eqn.params["dimension_numbers"], eqn.invars[0].aval.shape
    is_gather = eqn.primitive.name == "gather"
    names = _OF_GATHER if is_gather else _OF_SCATTER
    window, single, of_indices, index_map = (tuple(getattr(numbers, name)) for name in names)
    batching = tuple(numbers.operand_batching_dims)
    whole = tuple(axis for axis in range(len(shape)) if axis not in (*single, *batching))
    elements = (eqn.outvars[0] if is_gather else eqn.invars[2]).aval.shape
    sizes = [1] * len(shape)
    for axis, dimension in zip(window, whole, strict=True):
        sizes[dimension] = elements[axis]
    return Picking(window, whole, batching, of_indices, index_map, tuple(sizes))
