"""The program of a row needs as much time and memory for thousands of members as for a few."""

import dataclasses

import jax
import pytest
from test_mixture import CLASSES, NUMBERS
from tiers import fast, slow

from foretrace.stream.model.model import build_mixture, resolve
from foretrace.stream.model.model_config import ModelConfig
from foretrace.stream.model.rows import width

pytestmark = pytest.mark.usefixtures("standard_promotion")
ROW, MEMORY = (ModelConfig(experts=experts) for experts in (("row",), ("row", "memory")))
SMALL = ModelConfig(size="small", depth=1, model_size=4, state_size=3, rule="online")
STREAMS = {
    "numbers": (ROW, NUMBERS),
    "classes, memory": (MEMORY, CLASSES),
    "network": (SMALL, NUMBERS),
}


def costs(config, shape):
    """Return the temporary memory of the program of a row, and the bytes it reads and writes."""
    config, shape = resolve(config, shape)
    model = build_mixture(config, shape)
    with jax.enable_x64(True):
        rows = jax.ShapeDtypeStruct((1, width(shape)), float)
        state = jax.eval_shape(model.packing.pack, model.like)
        found = model._step.__wrapped__.lower(state, model.maps, rows).compile()
    memory = found.memory_analysis().temp_size_in_bytes
    return memory, found.cost_analysis()["bytes accessed"]


@pytest.mark.parametrize("name", fast(["numbers", slow("classes, memory"), slow("network")], 0))
def test_what_a_row_costs_does_not_depend_on_the_number_of_members(name):
    config, shape = STREAMS[name]
    # With fewer members, the smallest arrays of their states would be packed with others.
    few, many = (
        costs(config, dataclasses.replace(shape, members=members, delay=2))
        for members in (2000, 4000)
    )
    # Even a copy of four bytes a member would be more.
    assert max(after - before for before, after in zip(few, many, strict=True)) < 4 * 2000
