"""Every command that a page of the documentation shows is one that `foretrace` understands."""

import re
import shlex
from pathlib import Path

import pytest

import foretrace.cli._main as cli

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/**/*.md"))]


def commands(page):
    """Return the words after `foretrace` of each command of a page without placeholders."""
    text = (ROOT / page).read_text()
    blocks = re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL)
    shown = [
        line
        for block in blocks
        for line in block.replace("\\\n", " ").splitlines()
        if "results/" not in line
    ]
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    # In a sentence, a command without its source or task is a fragment.
    shown += [
        code.replace("\n", " ")
        for code in re.findall(r"`(foretrace \w+ [^-`][^`]* --[^`]*)`", prose)
    ]
    found = [re.search(r"(?:^|[\s/])foretrace (\w+ .*)", line) for line in shown if "…" not in line]
    # What a pipe leads to is another command.
    words = [shlex.split(match[1].split(" | ")[0], comments=True) for match in found if match]
    return [
        line
        for line in words
        if line[0] in cli.COMMANDS and line[0] != "resume" and "--help" not in line
    ]


@pytest.mark.full
@pytest.mark.parametrize("page", PAGES)
def test_commands_on_pages_are_understood(page):
    for line in commands(page):
        cli._parse(line)


def test_commands_are_found():
    found = [line for page in PAGES for line in commands(page)]
    assert len(found) > 30 and ["train", "copy"] in found
