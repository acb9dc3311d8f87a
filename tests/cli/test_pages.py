"""Every command that a page of the documentation shows is one that `foretrace` understands."""

import re
import shlex
from pathlib import Path

import pytest

import foretrace.cli._main as cli

ROOT = Path(__file__).parents[2]
PAGES = [
    str(page.relative_to(ROOT))
    for pattern in ("*.md", "docs/**/*.md", "results/*.md")
    for page in sorted(ROOT.glob(pattern))
    if page.name != "CHANGELOG.md"
]


def commands(page):
    """Return the words after `foretrace` of each command of a page without placeholders."""
    text = (ROOT / page).read_text().replace("\\\n", " ")
    lines = "\n".join(re.findall(r"```bash\n(.*?)```", text, flags=re.DOTALL)).splitlines()
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL).replace("\n", " ")
    # In a sentence, a command without its source or task is a fragment.
    lines += re.findall(r"`(foretrace \w+ [^-`][^`]* --[^`]*)`", prose)
    whole = [line for line in lines if "…" not in line and "results/" not in line]
    found = [re.search(r"(?:^|[\s/])foretrace (\w+ .*)", line) for line in whole]
    # What a pipe leads to is another command.
    words = [shlex.split(match[1].split(" | ")[0], comments=True) for match in found if match]
    others = cli.COMMANDS.keys() - {"resume"}
    return [line for line in words if line[0] in others and "--help" not in line]


@pytest.mark.full
@pytest.mark.parametrize("page", PAGES)
def test_commands_on_pages_are_understood(page):
    for line in commands(page):
        cli._parse(line)


def test_commands_are_found():
    found = [line for page in PAGES for line in commands(page)]
    assert len(found) > 30 and ["train", "copy"] in found
