"""The tiers of the tests: fast, the default, and two that it leaves out."""

import pytest

TIERS = ("program", "full")


def fast(cases, number=1):
    """Return the cases of a parametrisation; all but the first `number` of them belong to the full tier."""
    values = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*v, marks=() if i < number else pytest.mark.full) for i, v in enumerate(values)]


def slower(cases, names):
    """Return the cases of a parametrisation; those named belong to the program tier."""
    return [pytest.param(case, marks=pytest.mark.program) if case in names else case for case in cases]
