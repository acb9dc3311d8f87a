"""Marks on configuration fields for the command line."""

from typing import Annotated

import tyro

RuleText = Annotated[str, tyro.conf.arg(metavar="RULE")]
"""Type of a learning rule as text, such as bptt or online(depth=2)."""
