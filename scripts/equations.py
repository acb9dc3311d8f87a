"""Markdown extension: `$…$` and `$$…$$` become MathML, which browsers draw themselves."""

import re
from typing import Any

from latex2mathml.converter import convert
from markdown import Markdown
from markdown.extensions import Extension
from markdown.inlinepatterns import InlineProcessor
from markdown.preprocessors import Preprocessor

BLOCK = re.compile(r"^\$\$\n(.*?)\n\$\$$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"^(```+|~~~+).*?^\1\s*$", re.MULTILINE | re.DOTALL)
INLINE = r"(?<![\\$\w])\$(?=\S)([^$\n]+?)(?<=\S)\$(?![\d$])"


class Blocks(Preprocessor):
    """Replaces equations that stand alone, outside fenced code."""

    def run(self, lines: list[str]) -> list[str]:
        """Return the lines of a page with equations instead of their source."""
        text, parts, end = "\n".join(lines), [], 0
        for code in CODE.finditer(text):
            parts += [BLOCK.sub(self._drawn, text[end : code.start()]), code[0]]
            end = code.end()
        return "".join([*parts, BLOCK.sub(self._drawn, text[end:])]).split("\n")

    def _drawn(self, found: re.Match[str]) -> str:
        return self.md.htmlStash.store(
            f'<div class="equation">{convert(found[1], display="block")}</div>'
        )


class Inline(InlineProcessor):
    """Replaces equations within a line."""

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[Any, int, int]:
        """Return an equation, and where its source begins and ends."""
        return self.md.htmlStash.store(convert(m[1])), m.start(0), m.end(0)


class Equations(Extension):
    """Equations in pages."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Add both to a converter: blocks before fenced code, lines after code in backticks."""
        md.preprocessors.register(Blocks(md), "equations", 26)
        md.inlinePatterns.register(Inline(INLINE, md), "equation", 185)


def makeExtension(**options: Any) -> Equations:
    """Return the extension, as Markdown asks for it."""
    return Equations(**options)
