"""ListOps as the Long Range Arena specifies it: random trees of operators on digits, with values.

Many trees are grown at the same time, level by level. A level is an array with the number of
arguments of each node, where 0 is a digit. The next level contains the children of all operators,
in order. Trees of a wrong length are dropped before their digits and operators are drawn, which
does not change the distribution.
"""

import dataclasses
import hashlib
from collections.abc import Iterator

import numpy as np

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")

SYMBOLS = (*"0123456789", *OPERATORS, "]")
"""The symbols of a sequence. A symbol is stored as its index in this tuple."""

MIN, MAX, MED, SM, CLOSE = range(10, 15)
_TREES_AT_ONCE = 2000  # a seed has its meaning only with this number
_FRUITLESS_ROUNDS = 200


@dataclasses.dataclass(frozen=True)
class Grammar:
    """Parameters of the random trees.

    Args:
        min_length: lower bound of the number of tokens; every sequence has more tokens.
        max_length: upper bound of the number of tokens; every sequence has fewer tokens.
        max_depth: depth at which all nodes are digits. The root has depth 1.
        max_arguments: maximum number of arguments of an operator; the minimum is 2.
        operator_probability: probability that a node above `max_depth` is an operator.

    Raises:
        ValueError: no tree satisfies the settings.
    """

    min_length: int = 500
    max_length: int = 2000
    max_depth: int = 10
    max_arguments: int = 10
    operator_probability: float = 0.25

    def __post_init__(self) -> None:
        if not 3 <= self.min_length < self.max_length - 1:
            raise ValueError(
                f"min_length={self.min_length} must be at least 3 and max_length={self.max_length} "
                "above it"
            )
        if self.max_depth < 2 or self.max_arguments < 2 or not 0 < self.operator_probability <= 1:
            raise ValueError(f"no operator can grow by {self}")


def generate(grammar: Grammar, rows: int, seed: int) -> dict[str, np.ndarray]:
    """Return distinct random sequences, concatenated.

    The first rows do not depend on the number of rows.

    Args:
        grammar: distribution of the sequences.
        rows: number of sequences.
        seed: integer in `[0, 2^32)`.

    Returns:
        `symbols`, `offsets` and `labels`: the concatenated sequences, the start of each sequence
        and the end of the last one, and the values of the sequences.

    Raises:
        ValueError: the grammar has fewer different sequences than `rows`.
    """
    random = np.random.RandomState(seed)  # NumPy promises that its numbers never change
    seen: set[bytes] = set()
    kept: list[np.ndarray] = []
    labels: list[int] = []
    fruitless = 0
    while len(kept) < rows:
        before = len(kept)
        for symbols, value in _round(grammar, random):
            mark = hashlib.blake2b(symbols.data, digest_size=16).digest()
            if mark not in seen and len(kept) < rows:
                seen.add(mark)
                kept.append(symbols)
                labels.append(value)
        fruitless = fruitless + 1 if len(kept) == before else 0
        if fruitless == _FRUITLESS_ROUNDS:
            raise ValueError(f"only {before} of {rows} different sequences found for {grammar}")
    offsets = np.concatenate([[0], np.cumsum([len(symbols) for symbols in kept])])
    return {
        "symbols": np.concatenate(kept),
        "offsets": offsets,
        "labels": np.array(labels, np.uint8),
    }


def _round(grammar: Grammar, random: np.random.RandomState) -> Iterator[tuple[np.ndarray, int]]:
    """Grow trees; yield the sequences and values of the trees with an accepted length."""
    levels, lengths = _grow(grammar, random)
    if not len(lengths):
        return
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    kinds = [_draw_symbols(level, random) for level in levels]
    symbols, values = _write(levels, kinds, offsets), _evaluate(levels, kinds)
    for row, value in enumerate(values):
        yield symbols[offsets[row] : offsets[row + 1]], int(value)


def _grow(grammar: Grammar, random: np.random.RandomState) -> tuple[list[np.ndarray], np.ndarray]:
    """Return the levels and lengths of the trees with an accepted length.

    A digit as the root would be too short, so all roots are drawn as operators.
    """
    arguments = random.randint(2, grammar.max_arguments + 1, _TREES_AT_ONCE).astype(np.int8)
    tree = np.arange(_TREES_AT_ONCE)
    levels, trees = [arguments], [tree]
    lengths = np.full(_TREES_AT_ONCE, 2)
    for depth in range(2, grammar.max_depth + 1):
        tree = np.repeat(tree, arguments)
        arguments = _draw_arguments(grammar, depth, len(tree), random)
        lengths += np.bincount(tree, minlength=_TREES_AT_ONCE)
        lengths += np.bincount(tree[arguments > 0], minlength=_TREES_AT_ONCE)
        levels.append(arguments)
        trees.append(tree)
    keep = (grammar.min_length < lengths) & (lengths < grammar.max_length)
    return [level[keep[tree]] for level, tree in zip(levels, trees, strict=True)], lengths[keep]


def _draw_arguments(
    grammar: Grammar, depth: int, nodes: int, random: np.random.RandomState
) -> np.ndarray:
    arguments = np.zeros(nodes, np.int8)
    if depth < grammar.max_depth:
        operators = np.flatnonzero(random.random_sample(nodes) < grammar.operator_probability)
        arguments[operators] = random.randint(2, grammar.max_arguments + 1, len(operators))
    return arguments


def _draw_symbols(level: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    symbols = random.randint(0, 10, len(level), np.uint8)
    operators = np.flatnonzero(level)
    symbols[operators] = random.randint(MIN, SM + 1, len(operators), np.uint8)
    return symbols


def _write(levels: list[np.ndarray], kinds: list[np.ndarray], offsets: np.ndarray) -> np.ndarray:
    """Return the sequences of all trees, each of which begins at its offset."""
    spans = _spans(levels)
    symbols = np.empty(offsets[-1], np.uint8)
    place = offsets[:-1]
    for depth, (arguments, kind, span) in enumerate(zip(levels, kinds, spans, strict=True)):
        symbols[place] = kind
        operators = np.flatnonzero(arguments)
        if not len(operators):
            break
        symbols[place[operators] + span[operators] - 1] = CLOSE
        below = np.cumsum(spans[depth + 1]) - spans[depth + 1]
        first = _starts(arguments[operators])
        place = np.repeat(place[operators] + 1 - below[first], arguments[operators]) + below
    return symbols


def _spans(levels: list[np.ndarray]) -> list[np.ndarray]:
    """Return the number of tokens of each subtree.

    A digit has one token. An operator has two tokens and the tokens of its children.
    """
    spans = [np.ones(len(levels[-1]), np.int64)]
    for arguments in reversed(levels[:-1]):
        span = np.ones(len(arguments), np.int64)
        operators = np.flatnonzero(arguments)
        if len(operators):
            span[operators] = 2 + np.add.reduceat(spans[0], _starts(arguments[operators]))
        spans.insert(0, span)
    return spans


def _evaluate(levels: list[np.ndarray], kinds: list[np.ndarray]) -> np.ndarray:
    """Return the values of the trees, computed from the leaves upwards."""
    below = kinds[-1]
    for arguments, kind in zip(reversed(levels[:-1]), reversed(kinds[:-1]), strict=True):
        values = kind.copy()
        operators = np.flatnonzero(arguments)
        if len(operators):
            values[operators] = _apply(kind[operators], arguments[operators], below)
        below = values
    return below


def _apply(operators: np.ndarray, counts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Apply operators to groups of `counts` values. MED is the integer part of the median."""
    row = np.repeat(np.arange(len(counts)), counts)
    column = np.arange(len(values)) - np.repeat(_starts(counts), counts)
    table = np.full((len(counts), counts.max()), 10, np.uint8)  # 10 is sorted after every digit
    table[row, column] = values
    table.sort(axis=1)
    every = np.arange(len(counts))
    median = (table[every, (counts - 1) // 2] + table[every, counts // 2]) // 2
    total = np.add.reduceat(values.astype(np.int64), _starts(counts)) % 10
    choices = [table[:, 0], table[every, counts - 1], median, total]
    return np.choose(operators - MIN, choices).astype(np.uint8)


def _starts(counts: np.ndarray) -> np.ndarray:
    """Return the start of each of several consecutive groups."""
    return np.cumsum(counts, dtype=np.int64) - counts
