"""ListOps: the law of the trees, and their values."""

import numpy as np
import pytest

from foretrace.tasks._listops import SYMBOLS, Grammar, generate
from foretrace.tasks.listops import ListOps

SMALL = Grammar(min_length=20, max_length=60, max_depth=4)
ROWS = 1000


@pytest.fixture(scope="module")
def generated():
    return generate(Grammar(), ROWS, seed=1)


def sequences(arrays):
    return np.split(arrays["symbols"], arrays["offsets"][1:-1])


def test_lengths_and_shares_are_those_of_the_specification(generated):
    """Within five standard errors of a thousand rows; tokens of a row are dependent, so wider."""
    lengths = np.diff(generated["offsets"])
    assert lengths.min() > 500 and lengths.max() < 2000
    assert abs(lengths.mean() - 1035) < 5 * lengths.std() / ROWS**0.5
    np.testing.assert_allclose(np.percentile(lengths, [5, 50, 95]), [538, 954, 1798], rtol=0.08)
    labels = np.bincount(generated["labels"], minlength=10) / ROWS
    expected = np.array([0.172, 0.090, 0.076, 0.082, 0.089, 0.087, 0.077, 0.071, 0.088, 0.168])
    assert (abs(labels - expected) < 5 * (expected * (1 - expected) / ROWS) ** 0.5).all()
    tokens = np.bincount(generated["symbols"], minlength=15) / len(generated["symbols"])
    np.testing.assert_allclose(tokens, [0.0716] * 10 + [0.0356] * 4 + [0.1423], rtol=0.02)


def test_rows_depend_on_the_seed_alone():
    first, more, other = (generate(SMALL, rows, seed) for rows, seed in ((10, 3), (30, 3), (10, 4)))
    np.testing.assert_array_equal(first["symbols"], more["symbols"][: first["offsets"][-1]])
    np.testing.assert_array_equal(first["labels"], more["labels"][:10])
    assert not np.array_equal(first["labels"], other["labels"])
    # These very rows are what a published number was got with: they must not change.
    text = " ".join(SYMBOLS[symbol] for symbol in sequences(first)[0])
    assert text == "[SM 7 9 7 5 6 0 1 [MIN 0 [MIN 7 5 5 4 6 ] 2 2 0 1 5 ] 5 0 ]"
    np.testing.assert_array_equal(first["labels"], [0, 5, 7, 4, 0, 0, 3, 6, 2, 3])


def test_no_row_comes_twice():
    tiny = Grammar(min_length=3, max_length=5, max_depth=2)
    rows = generate(tiny, 400, seed=0)  # [OP a b ]: there are 4 x 10 x 10 such trees
    assert len({row.tobytes() for row in sequences(rows)}) == 400
    with pytest.raises(ValueError, match="only 400 of 401 different sequences"):
        generate(tiny, 401, seed=0)


def test_held_out_rows_do_not_depend_on_the_number_of_samples(data):
    task = data.listops()
    assert task.sizes == {"training": 30, "validation": 7, "test": 7}
    assert "regenerated with the LRA specification" in task.provenance
    fewer = ListOps(samples=12, held_out=7, min_length=20, max_length=60)
    found = [one.evaluation("test", 0, 0, 7).xs for one in (task, fewer)]
    np.testing.assert_array_equal(*found)
    members = [task.split(name).members.tolist() for name in task.sizes]
    assert sorted(sum(members, [])) == list(range(44))
