"""Marks on the fields of configurations that decide how the command line shows them."""

from typing import Annotated, Final, TypeVar

T = TypeVar("T")
ADVANCED: Final = "advanced"

Advanced = Annotated[T, ADVANCED]
"""Type of an option that `--help` leaves out; `--help-all` shows it. `steps: Advanced[int] = 10` is an example."""
