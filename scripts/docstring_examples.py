"""Griffe extension that shows docstring examples as code on the API page.

The docstrings of the package hold bare `>>>` blocks, which doctest runs. Markdown would read them
as nested quotes.
"""

import re

import griffe

BLOCK = re.compile(r"(?:^>>> .*\n?)(?:^.+\n?)*", flags=re.MULTILINE)


class DocstringExamples(griffe.Extension):
    """Put each block that begins with `>>>`, up to an empty line, into a section `Examples`."""

    def on_object(self, *, obj: griffe.Object, **kwargs: object) -> None:
        """Rewrite the docstring of a loaded object."""
        if obj.docstring and "Examples:" not in obj.docstring.value:
            obj.docstring.value = BLOCK.sub(_section, obj.docstring.value)


def _section(block: re.Match[str]) -> str:
    return "Examples:\n" + re.sub(r"^(?=.)", "    ", block.group(), flags=re.MULTILINE)
