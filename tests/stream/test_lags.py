"""Categories of earlier rows as features."""

import numpy as np
import pytest

from foretrace.stream.experts.shape import category_codes


@pytest.mark.parametrize("size", [1, 2, 4])
def test_every_category_has_features_of_its_own(size):
    codes = category_codes(16, size)
    assert not codes[0].any() and len(np.unique(codes.round(3), axis=0)) == 16
    # The first ones are independent of each other: a linear model tells them apart.
    assert np.linalg.matrix_rank(codes[: size + 1] - codes[0]) == size
