"""Marks on the fields of configurations that decide how the command line shows them."""

from typing import Annotated

import tyro

RuleText = Annotated[str, tyro.conf.arg(metavar="RULE")]
"""Type of a learning rule as text, such as bptt or online(depth=2)."""
