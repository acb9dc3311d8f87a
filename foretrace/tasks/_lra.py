"""The Long Range Arena's ListOps files: a header, then a tree and its value on each line.

A tree is written binary and nested to the left, `( ( ( [MAX 2 ) 9 ) ] )`; its tokens are the rest
without the parentheses.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from foretrace.tasks._files import DataError
from foretrace.tasks._listops import CLOSE, MIN, SYMBOLS

HEADER = "Source\tTarget"
_NUMBER = {symbol.encode(): number for number, symbol in enumerate(SYMBOLS)}


def read(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Return the sequences of a file as `_listops.generate` does.

    Raises:
        DataError: the file is not in this format.
    """
    rows, labels = [], []
    with open(path, "rb") as file:
        if file.readline().rstrip() != HEADER.encode():
            raise DataError(f"{path} does not begin with the line {HEADER!r}")
        for number, line in enumerate(file, start=2):
            try:
                source, target = line.split(b"\t")
                rows.append(np.array(tokens(source), np.uint8))
                labels.append(int(target))
            except (ValueError, KeyError) as error:
                raise DataError(
                    f"{path}, line {number}: {error!r} is no ListOps sequence and value"
                ) from error
    if not rows or not set(labels) <= set(range(10)):
        raise DataError(f"{path} has no rows, or values other than 0 to 9")
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    return {
        "symbols": np.concatenate(rows),
        "offsets": offsets,
        "labels": np.array(labels, np.uint8),
    }


def tokens(source: bytes) -> list[int]:
    """Return the symbols of a tree; parentheses carry no meaning.

    Raises:
        KeyError: a token that is no symbol.

    >>> tokens(b"( ( ( [MAX 2 ) 9 ) ] )")
    [11, 2, 9, 14]
    """
    return [_NUMBER[token] for token in source.translate(None, b"()").split()]


def write(
    path: str | os.PathLike[str], sequences: Iterable[np.ndarray], labels: Iterable[int]
) -> None:
    """Write sequences and their values; the file appears whole or not at all.

    Raises:
        ValueError: a sequence is not one tree.
    """
    path = Path(path)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(scratch, "w", newline="\r\n") as file:  # as in the released files
            file.write(HEADER + "\n")
            for symbols, label in zip(sequences, labels, strict=True):
                file.write(f"{nested(symbols)}\t{label}\n")
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def nested(symbols: Iterable[int]) -> str:
    """Return a tree as it is written in a file.

    Raises:
        ValueError: the symbols are not one tree.

    >>> nested([11, 2, 9, 14])
    '( ( ( [MAX 2 ) 9 ) ] )'
    """
    stack: list[list[str]] = [[]]
    for symbol in symbols:
        if symbol == CLOSE and len(stack) > 1:
            parts = stack.pop()
            stack[-1].append(
                "( " * len(parts)
                + " ".join([parts[0], *(f"{part} )" for part in parts[1:]), "] )"])
            )
        elif MIN <= symbol < CLOSE:
            stack.append([SYMBOLS[symbol]])
        else:
            stack[-1].append(SYMBOLS[symbol])
    if len(stack) != 1 or len(stack[0]) != 1 or stack[0] == ["]"]:
        raise ValueError("the symbols are not one tree")
    return stack[0][0]
