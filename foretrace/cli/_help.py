"""The help of a command: the parser's help, in groups, with one default for each option."""

import contextlib
import io
import os
import re
import shutil
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

GROUPS = {
    "what": "FILE target task horizon like journal",
    "columns": "numeric categorical time text ignore known expert-column format delimiter "
    "encoding bad-rows outliers categories words",
    "time and members": "previous member members reset",
    "labels": "delay id waiting keep classes alarm unusual at-least coverage",
    "model": "size experts",
    "network, for --size small or the expert network": "cell depth model-size state-size rule lr",
    "output": "run-dir predictions forecast tensorboard log-every",
    "running": "rows checkpoint-every kafka-config metrics-port",
}
"""Groups of the options for a stream."""

EXAMPLES = {
    "stream": """
foretrace stream examples/sensors.csv.gz --target reject
foretrace stream examples/sensors.csv.gz --target temperature --horizon 24 --forecast
zcat examples/sensors.csv.gz | foretrace stream - --format csv --target reject --predictions -
"""
}
"""Command lines at the end of a command's help."""

_WIDTH = 100
"""Width of the parser's help, so narrow that boxes are never side by side."""

_BOX = re.compile(r"╭─ (.*?) ─*╮\n(.*?)╰─*╯\n?", re.DOTALL)


def helped(name: str, parse: Callable[[], Any]) -> Any:
    """Print the help of a parser, in groups, and in lines that break at spaces.

    Args:
        name: name of the command.
        parse: function that prints the parser's help and ends the program.

    Raises:
        SystemExit: always, as the parser raises it.
    """
    before = os.environ.get("COLUMNS")
    text = io.TextIOWrapper(io.BytesIO(), "utf-8")  # whose encoding has boxes
    width = min(shutil.get_terminal_size().columns, _WIDTH)
    os.environ["COLUMNS"] = str(_WIDTH)
    try:
        with contextlib.redirect_stdout(text):
            return parse()
    finally:
        os.environ.pop("COLUMNS")
        os.environ |= {} if before is None else {"COLUMNS": before}
        text.seek(0)
        if said := text.read():
            print(_page(name, said, width))


def _page(name: str, text: str, width: int) -> str:
    """Return the page for a parser's help, which consists of boxes."""
    usage, *parts = text.partition("╭")[0].strip().split("\n\n")
    usage = re.sub(r"(train|rl|align) \[-h\]", r"\1 [TASK] [-h]", usage).replace("[-h] ", "")
    usage = _plain(usage.replace("[OPTIONS] [STR]", "FILE [OPTIONS]"))
    lines = [usage]
    lines += [f"\n{textwrap.fill(part, width)}" for part in parts]
    groups: dict[str, dict[str, str]] = {}
    for title, box in _BOX.findall(text):
        inside = re.sub(r"^│ ?(.*?) *│$", r"\1", box, flags=re.MULTILINE)
        about, _, options = inside.rpartition("───\n")
        groups[title] = {"": re.sub(r"\n?─*$", "", about)} if about else {}
        groups[title] |= dict(_option(*entry, width) for entry in _entries(options))
    if name == "stream":
        found = {key: one for group in groups.values() for key, one in group.items() if key}
        groups = {
            title: {key: found.pop(key) for key in names.split() if key in found}
            for title, names in GROUPS.items()
        }
        groups["others"] = found
    for title, group in groups.items():
        group.pop("h", None)
        shown = [textwrap.indent(one, "  ") for one in group.values()]
        lines += [f"\n{title}:", *shown] if shown else []
    if name in EXAMPLES:
        lines += ["\nexamples:", textwrap.indent(EXAMPLES[name].strip(), "  ")]
    return "\n".join(lines)


def _entries(box: str) -> Iterator[tuple[str, str]]:
    """Yield the names and the description of each option in a box."""
    names = said = ""
    for line in box.splitlines():
        name, _, beside = line.partition("  ")
        if name and said:
            yield names, said
            names = said = ""
        names += f"{name} "
        said = f"{said} {beside.strip()}".strip()
    yield names, said


def _option(names: str, said: str, width: int) -> tuple[str, str]:
    """Return the first name of an option, and its text with a description and a default."""
    first, *others = re.split(r", (?=--)", re.sub(r", (?=[^{}]*\})", ",", names.strip()))
    flag, _, values = first.replace("[STR]", "FILE").partition(" ")
    flags = [flag, *(one.split()[0] for one in others)]
    said = re.sub(r" \((required|repeatable)\)", "", f" {said.strip()}")
    said, default, _ = re.split(r" \(default: ?([^()]*)\)$|$", said, maxsplit=1)
    if default in (None, "", "None"):
        values = _plain(values)
    elif "Default:" not in said and default != "FILE":
        said += f" Default: {default}."
    if "{" in values and len(values) > 50:
        listed = ", ".join(re.findall(r"\w[\w-]*", values))
        said = re.sub(r"(?= Default:)", f" Values: {listed}.", said, count=1)
        values = "NAME ..." if "..." in values else "NAME"
    values = re.sub(r"\{([^,]*)\}", r"\1", values)
    text = textwrap.fill(said.strip(), width - 8, break_long_words=False, break_on_hyphens=False)
    words = f"{', '.join(flags)} {values}".rstrip()
    return flag.lstrip("-"), f"{words}\n{textwrap.indent(text, '    ')}"


def _plain(values: str) -> str:
    """Return the text of an option's values without `None`, which means "not given"."""
    values = re.sub(r"\{None\}\||(?<=\{)None,", "", values)
    return re.sub(r"\[+(\w+) \[\1 \.\.\.\]+", r"\1 ...", values)
