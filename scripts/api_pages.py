"""Write signatures and docstrings into the pages of docs/api: python scripts/api_pages.py.

The lines between `<!-- api: NAME -->` and `<!-- end -->` are written from the source; the others
are kept. `NAME+` also shows the public methods of a class.
"""

import ast
import inspect
import pkgutil
import re
import sys
import textwrap
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "api"
PART = re.compile(r"<!-- api: (\S+) -->\n.*?<!-- end -->", re.DOTALL)
SECTION = re.compile(r"^(Args|Attributes|Returns|Yields|Raises):\n((?:    .*\n|\n)+)", re.MULTILINE)
TYRO = re.compile(r"(?:Annotated|tyro[\w.]+)\[(.*?)(?:, tyro.*)?\](?= =)")
"""What the command line alone reads in a type."""
EXAMPLE = re.compile(r"^>>> (?:.+\n)+", re.MULTILINE)


def written(page: str) -> str:
    """Return a page with its parts written anew."""
    return PART.sub(lambda part: f"<!-- api: {part[1]} -->\n{_part(part[1])}<!-- end -->", page)


def _part(path: str) -> str:
    """Return the heading, signature and docstring of a name, and with `+` of its methods."""
    name, value = path.rstrip("+"), pkgutil.resolve_name(path.rstrip("+"))
    node, text = _parsed(name, value)
    title = re.search(r"([A-Z]\w*\.)?\w+$", name)[0]
    parts = [f'<a id="{name}"></a>\n\n{"####" if "." in title else "###"} `{title}`\n']
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        parts.append(f"```py\n{_signature(node, value)}\n```\n")
    parts.append(_markdown(text))
    if path.endswith("+"):
        methods = [one for one in node.body if isinstance(one, ast.FunctionDef)]
        shown = dict.fromkeys(one.name for one in methods if not one.name.startswith("_"))
        parts += [_part(f"{name}.{method}") for method in shown]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(parts)).rstrip() + "\n"


def _parsed(name: str, value: Any) -> tuple[Any, str]:
    """Return the syntax tree that defines a name, and its docstring."""
    value = getattr(value, "fget", value)
    if inspect.isclass(value) or inspect.isroutine(value) or hasattr(value, "__wrapped__"):
        node = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(value)))).body[0]
        return node, ast.get_docstring(node) or ""
    body = ast.parse(inspect.getsource(sys.modules[type(value).__module__])).body
    for node, after in zip(body, body[1:], strict=False):
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        if getattr(targets[0], "id", "") == name.rpartition(".")[2]:
            return node, inspect.cleandoc(after.value.value)
    raise LookupError(name)


def _signature(node: Any, value: Any) -> str:
    """Return the arguments of a function, of an initialiser, or the fields of a class."""
    result = ""
    if isinstance(node, ast.ClassDef):
        own = [one for one in value.__mro__ if one.__module__.startswith("foretrace")]
        bodies = [_parsed("", one)[0].body for one in own]
        made = [one for body in bodies for one in body if getattr(one, "name", "") == "__init__"]
        lines = [one for body in bodies[::-1] for one in body if isinstance(one, ast.AnnAssign)]
        fields = {
            one.target.id: ast.unparse(one) for one in lines if "ClassVar" not in ast.unparse(one)
        }
        words = [line for name, line in fields.items() if not name.startswith("_")]
        arguments = _arguments(made[0].args) if made else words
    else:
        arguments = _arguments(node.args)
        result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        if "property" in map(ast.unparse, node.decorator_list):
            return node.name + result.replace(" ->", ":")
    arguments = [re.sub(TYRO, r"\1", one) for one in arguments]
    line = f"{node.name}({', '.join(arguments)}){result}"
    lines = ",\n    ".join(arguments)
    return line if len(line) <= 88 else f"{node.name}(\n    {lines},\n){result}"


def _arguments(args: ast.arguments) -> list[str]:
    """Return each argument with its type and default, without `self`."""
    found = [*args.posonlyargs, *args.args]
    defaults = [*[None] * (len(found) - len(args.defaults)), *args.defaults, *args.kw_defaults]
    words = [
        ast.unparse(arg) + (f" = {ast.unparse(default)}" if default else "")
        for arg, default in zip([*found, *args.kwonlyargs], defaults, strict=True)
    ]
    stars = [f"*{ast.unparse(args.vararg)}"] if args.vararg else ["*"] * bool(args.kwonlyargs)
    words[len(found) : len(found)] = stars
    last = [f"**{ast.unparse(args.kwarg)}"] if args.kwarg else []
    return [word for word in [*words, *last] if word not in ("self", "cls")]


def _markdown(text: str) -> str:
    """Return a docstring with lists for its sections and fences around its examples."""
    text = EXAMPLE.sub(lambda code: f"```pycon\n{code[0]}```\n", text.strip() + "\n")
    return re.sub(r"^Source: ", "*Source*: ", SECTION.sub(_section, text), flags=re.MULTILINE)


def _section(found: re.Match[str]) -> str:
    """Return a section as a list with one item for each name."""
    body = textwrap.dedent(found[2]).strip()
    if found[1] in ("Returns", "Yields"):
        return f"*{found[1]}*: {body}\n\n"
    items = re.sub(r"^(\w[\w*, ]*): ", r"- `\1`: ", body, flags=re.MULTILINE)
    return f"*{found[1]}*:\n\n{re.sub(r'^    ', '  ', items, flags=re.MULTILINE)}\n\n"


if __name__ == "__main__":
    for path in sorted(FOLDER.glob("*.md")):
        path.write_text(written(path.read_text()))
