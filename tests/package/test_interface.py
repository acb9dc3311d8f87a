"""The shape of the package: public names, the one direction of imports, what importing costs."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import foretrace as ft

PACKAGE = Path(ft.__file__).parent

ORDER = [
    "_types",
    "_cache",
    "_compiler",
    "losses",
    "_covariance",
    "_rule",
    "_cells",
    "heads",
    "_network",
    "_modules",
    "_recurrence",
    "_credit",
    "_engine",
    "_learner",
    "testing",
    "tasks",
    "_runs",
    "_options",
    "_graph",
    "_native",
    "_export",
    "_distributed",
    "experiment",
    "paper",
    "_experts",
    "_rows",
    "stream",
    "rl",
    "sweep",
    "cli",
    "__main__",
]
"""Data flows one way: a module imports only from those before it."""


def imported(path):
    """List the modules of the package that a file imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module
            and node.module.split(".")[0] == "foretrace"
        ):
            parts = node.module.split(".")[1:]
            yield from [parts[0]] if parts else [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            yield from (parts[1] for parts in names if parts[0] == "foretrace" and len(parts) > 1)


def test_imports_go_one_way():
    seen = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if name == "__init__":
            continue
        seen.add(name)
        assert name in ORDER, f"{path.name} has no place in the order of the data flow"
        for other in imported(path):
            if other not in ORDER:  # a public name from the package's page
                assert ORDER.index(name) >= ORDER.index("testing"), (
                    f"{path.name} imports {other} from the top"
                )
                continue
            assert ORDER.index(other) <= ORDER.index(name), (
                f"{path.name} imports {other}, which comes after it"
            )
    assert {"_cells", "_recurrence", "_learner"} <= seen


@pytest.mark.parametrize("room", ["experiment", "stream", "rl"])
def test_kinds_of_runs_do_not_know_each_other(room):
    others = {"experiment", "stream", "rl", "paper", "sweep", "cli"} - {room}
    for path in (PACKAGE / room).rglob("*.py"):
        assert others.isdisjoint(imported(path)), path.name


def test_annotations_stay_checked():
    for path in PACKAGE.rglob("*.py"):
        assert "from __future__ import annotations" not in path.read_text(), (
            f"{path.name} breaks run-time shape checks"
        )


def test_fixed_names_exist():
    names = """
    Network LRU LinearRNN GRU ElementwiseLSTM MinGRU MinLSTM RGLRU S5 SelectiveSSM RTU IndRNN LIF
    SetReset Rotation
    FromModule init_carry gradient Learner losses save load testing alignment export to_torch
    RESERVOIR SPATIAL TRUNCATED SNAP1 ONLINE RTRL HYBRID BPTT AbstractCell
    """
    missing = [name for name in names.split() if not hasattr(ft, name)]
    assert not missing
    assert ft.ONLINE is ft.SNAP1


def test_every_public_name_is_documented():
    for name, value in vars(ft).items():
        if not name.startswith("_") and (isinstance(value, type) or callable(value)):
            assert value.__doc__, f"{name} has no docstring"


def api_pages():
    return "\n".join(
        path.read_text() for path in sorted((PACKAGE.parent / "docs" / "api").glob("*.md"))
    )


def test_every_public_name_is_on_a_page_of_the_api():
    page = api_pages()
    names = [name for name in vars(ft) if not name.startswith("_") and name not in sys.modules]
    own = [
        name
        for name in names
        if getattr(getattr(ft, name), "__module__", "foretrace").startswith("foretrace")
    ]
    missing = [name for name in own if not isinstance(getattr(ft, name), ModuleType)]
    missing = [name for name in missing if f"foretrace.{name}\n" not in page]
    assert "Network" in own
    assert not missing


@pytest.mark.parametrize("room", ["experiment", "sweep", "testing", "rl"])
def test_every_name_of_a_public_room_is_on_a_page_of_the_api(room):
    page = api_pages()
    names = [
        name
        for name, value in vars(importlib.import_module(f"foretrace.{room}")).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    ]
    assert len(names) >= 3
    assert [name for name in names if f".{name}\n" not in page and f"`{name}`" not in page] == []


def test_importing_loads_no_program_parts_and_public_rooms_on_demand():
    code = """
import sys, foretrace as ft
print([m for m in ("tyro", "rich", "matplotlib", "river", "optuna") if m in sys.modules])
print(*(getattr(ft, name).__name__ for name in ("experiment", "sweep", "tasks")))
"""
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    rooms = "foretrace.experiment foretrace.sweep foretrace.tasks"
    assert result.stdout.splitlines() == ["[]", rooms]
