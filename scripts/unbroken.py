"""Markdown extension: options, numbers and their units are not broken over two lines."""

import re
from typing import Any
from xml.etree.ElementTree import Element

from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString

OPTION = re.compile(r"((?<![\w-])--?[A-Za-z][\w.-]*)")
POWER = re.compile(r"(\d[\d.]*e-\d+)")
UNIT = re.compile(r"(?<=\d) (?=(?:%|µs|ms|s|kB|MB|GB|KiB|MiB|GiB)(?!\w))")


class Unbroken(Treeprocessor):
    """Walks a page whose inline markup has been parsed."""

    def run(self, root: Element) -> None:
        """Change the tree in place."""
        for parent in list(root.iter()):
            children = list(parent)
            if parent.tag == "code":
                self._split(parent, None, OPTION)
            else:
                self._split(parent, None, POWER)
            for child in children:
                self._split(parent, child, POWER)

    def _split(self, parent: Element, before: Element | None, whole: re.Pattern[str]) -> None:
        """Put each match in the text after `before`, or at the beginning, into a `span`."""
        text = (parent.text if before is None else before.tail) or ""
        first, *parts = whole.split(text if parent.tag == "code" else UNIT.sub("\u00a0", text))
        if before is None:
            parent.text = self._kept(text, first)
        else:
            before.tail = self._kept(text, first)
        place = 0 if before is None else list(parent).index(before) + 1
        for match, after in zip(parts[::2], parts[1::2], strict=True):
            span = Element("span", {"class": "whole"})
            span.text, span.tail = AtomicString(match), self._kept(text, after)
            parent.insert(place, span)
            place += 1

    def _kept(self, text: str, part: str) -> str:
        """Return a part of a text; what Markdown must not parse again stays so."""
        return AtomicString(part) if isinstance(text, AtomicString) else part


class Extended(Extension):
    """Unbroken options, numbers and units in pages."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Add it to a converter, after everything inline."""
        md.treeprocessors.register(Unbroken(md), "unbroken", 5)


def makeExtension(**options: Any) -> Extended:
    """Return the extension, as Markdown asks for it."""
    return Extended(**options)
