"""A tree as few arrays: what goes in comes out, whatever its shapes, types and keys."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace._learner.packing import SMALL, Packed, Packing

SHAPES = st.sampled_from([(), (0,), (3,), (2, 1, 2), (SMALL,), (SMALL + 1,), (2, SMALL)])
DTYPES = st.sampled_from(["float32", "float64", "complex64", "int32", "uint32", "bool"])


@given(st.lists(st.tuples(SHAPES, DTYPES), max_size=6), st.booleans())
def test_what_is_packed_comes_back(leaves, with_key):
    draw = np.random.default_rng(0)
    tree = {"arrays": [jnp.asarray(draw.normal(size=shape) * 9, dtype) for shape, dtype in leaves]}
    tree |= {"key": jax.random.key(3)} if with_key else {}
    packing = Packing(jax.eval_shape(lambda: tree))
    packed = packing.pack(tree)
    same, _ = packing.keeping_packed(lambda tree: (tree, None))(packed)
    assert isinstance(same, Packed)
    back = packing.taking_packed(lambda tree: tree)(same)
    assert jax.tree.structure(back) == jax.tree.structure(tree)
    if with_key:
        assert back["key"] == tree["key"]
    for a, b in zip(back["arrays"], tree["arrays"], strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_array_equal(a, b)
    small = [array for array in tree["arrays"] if array.size <= SMALL]
    assert len(packed.small) == len({array.dtype for array in small})
    assert len(packed.large) == len(tree["arrays"]) - len(small) + with_key


@pytest.mark.parametrize("other", [jnp.ones(2, int), jnp.ones(3)])
def test_other_arrays_are_refused(other):
    with pytest.raises(TypeError, match=r"where its learner has float64\[2\]"):
        Packing({"a": jnp.ones(2)}).pack({"a": other})
