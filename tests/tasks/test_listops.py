"""ListOps: the law of the trees, and their values."""

import statistics
from pathlib import Path

import numpy as np
import pytest
from stored import real_data

from foretrace.tasks._listops import SYMBOLS, Grammar, generate
from foretrace.tasks.listops import ListOps

SMALL = Grammar(min_length=20, max_length=60, max_depth=4)
ROWS = 1000


@pytest.fixture(scope="module")
def generated():
    return generate(Grammar(), ROWS, seed=1)


def sequences(arrays):
    return np.split(arrays["symbols"], arrays["offsets"][1:-1])


def value(symbols):
    """Evaluate by descending into the tokens, unlike the package, which goes up from leaves."""
    rest = iter(SYMBOLS[symbol] for symbol in symbols)

    def expression(token):
        if token.isdigit():
            return int(token)
        arguments = []
        while (following := next(rest)) != "]":
            arguments.append(expression(following))
        assert 2 <= len(arguments) <= 10
        return OPERATIONS[token](arguments)

    result = expression(next(rest))
    assert next(rest, None) is None
    return result


OPERATIONS = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda values: int(statistics.median(values)),
    "[SM": lambda values: sum(values) % 10,
}


def test_values_are_right(generated):
    rows = sequences(generated)
    assert [value(row) for row in rows] == generated["labels"].tolist()


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


def test_the_reference_rows():
    """Ten rows of the Long Range Arena: a tree is nested to the left, without parentheses."""
    path = Path(real_data("listops")) / "listops" / "sample_lra_format.tsv"
    rows = [line.split("\t") for line in path.read_text().splitlines()[1:]]
    for tree, label in rows:
        tokens = tree.translate({ord("("): None, ord(")"): None}).split()
        assert value([SYMBOLS.index(token) for token in tokens]) == int(label)
    assert len(rows) == 10
