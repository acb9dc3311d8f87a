"""The elements that a gather reads or a scatter writes."""

from typing import Any, NamedTuple


class Picking(NamedTuple):
    """Axes of the array that is read from or written to, and of the elements.

    Args:
        window: axes of the elements that run along the array.
        whole: axes of the array that they run along.
        batching: axes of the array that the elements share with the indices.
        indices_batching: these axes of the indices.
        index_map: axis of the array that each index is a place on.
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
    if eqn.primitive.name == "gather":
        window, single = numbers.offset_dims, numbers.collapsed_slice_dims
        indices_batching = numbers.start_indices_batching_dims
        index_map = numbers.start_index_map
    else:
        window, single = numbers.update_window_dims, numbers.inserted_window_dims
        indices_batching = numbers.scatter_indices_batching_dims
        index_map = numbers.scatter_dims_to_operand_dims
    batching = numbers.operand_batching_dims
    whole = tuple(axis for axis in range(len(shape)) if axis not in (*single, *batching))
    elements = (eqn.outvars[0] if eqn.primitive.name == "gather" else eqn.invars[2]).aval.shape
    sizes = [1] * len(shape)
    for axis, dimension in zip(window, whole, strict=True):
        sizes[dimension] = elements[axis]
    return Picking(
        tuple(window),
        whole,
        tuple(batching),
        tuple(indices_batching),
        tuple(index_map),
        tuple(sizes),
    )
