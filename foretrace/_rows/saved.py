"""Limits of saved values, which may have the right types and still be invalid."""

from collections.abc import Iterable, Sized

from foretrace._rows.values import MAX_ABS_VALUE

MOST = 2**53
"""Largest count."""


def check_derived(name: str, values: Iterable[float]) -> None:
    """Check that saved numbers can follow from the numbers of a stream.

    Raises:
        ValueError: one is not finite, or larger.
    """
    check_within(name, values, -(MAX_ABS_VALUE**2), MAX_ABS_VALUE**2)


def check_within(name: str, values: Iterable[float], least: float, most: float) -> None:
    """Check that saved numbers lie between two others; NaN lies nowhere.

    Raises:
        ValueError: a number lies elsewhere.
    """
    for value in values:
        if not least <= value <= most:
            raise ValueError(f"{name}={value!s:.80} must lie between {least:g} and {most:g}")


def check_size(name: str, values: Sized, size: int) -> None:
    """Check how many values were saved.

    Raises:
        ValueError: there are more or fewer.
    """
    if len(values) != size:
        raise ValueError(f"{name} has {len(values)} values, but {size} are saved")


def check_counts(name: str, counts: dict[str, int]) -> None:
    """Check that counts are not negative.

    Raises:
        ValueError: one is.
    """
    check_within(name, counts.values(), 0, MOST)
