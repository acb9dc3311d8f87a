"""A Markdown extension for the documentation: an option and a number with its unit are not broken over two lines."""

import re
from typing import Any
from xml.etree.ElementTree import Element, SubElement

from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor
from markdown.util import AtomicString

OPTION = re.compile(r"((?<![\w-])--?[A-Za-z][\w.-]*)")
UNIT = re.compile(r"(?<=\d) (?=(?:%|µs|ms|s|kB|MB|GB|KiB|MiB|GiB)(?!\w))")


class Unbroken(Treeprocessor):
    """Walks a page whose inline markup has been parsed."""

    def run(self, root: Element) -> None:
        """Change the tree in place."""
        for element in list(root.iter()):
            if element.tag == "code":
                self._hold_options(element)
            elif element.text:
                element.text = UNIT.sub("\u00a0", element.text)
            if element.tail:
                element.tail = UNIT.sub("\u00a0", element.tail)

    def _hold_options(self, code: Element) -> None:
        """Put each option into a `span`, because browsers break lines after a hyphen."""
        parts = OPTION.split(code.text or "")
        if len(code) or len(parts) == 1:
            return
        code.text = AtomicString(parts[0])
        for option, after in zip(parts[1::2], parts[2::2], strict=True):
            span = SubElement(code, "span", {"class": "option"})
            span.text, span.tail = AtomicString(option), AtomicString(after)


class Extended(Extension):
    """Unbroken options and units in pages."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Add it to a converter, after everything inline."""
        md.treeprocessors.register(Unbroken(md), "unbroken", 5)


def makeExtension(**options: Any) -> Extended:
    """Return the extension, as Markdown asks for it."""
    return Extended(**options)
