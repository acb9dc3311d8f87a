"""The tiers of the tests: fast, the default, and those that it leaves out."""

import pytest

TIERS = ("program", "full", "slow")


def fast(cases, number=1):
    """Return the cases of a parametrisation; all but the first `number` are in the full tier."""
    return [
        case if hasattr(case, "marks") else _case(case, in_full=i >= number)
        for i, case in enumerate(cases)
    ]


def slow(*case):
    """Return a case for the slow tier, which costs more than it adds to the full tier."""
    return pytest.param(*case, marks=pytest.mark.slow)


def _case(case, in_full):
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.full if in_full else ())


def slower(cases, names):
    """Return the cases of a parametrisation; those named belong to the program tier."""
    return [
        pytest.param(case, marks=pytest.mark.program) if case in names else case for case in cases
    ]
