"""Marks on the fields of configurations that decide how the command line shows them."""

from typing import Annotated, Final, TypeVar

import tyro

T = TypeVar("T")
ADVANCED: Final = "advanced"

Advanced = Annotated[T, ADVANCED]
"""Type of an option that only `--help-all` shows, such as `steps: Advanced[int] = 10`."""

RuleText = Annotated[str, tyro.conf.arg(metavar="RULE")]
"""Type of a learning rule as text, such as bptt or online(depth=2)."""
