"""The shape of the package: public names, the one direction of imports, what importing costs."""

import ast
import graphlib
import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest
from processes import printed

import foretrace as ft

PACKAGE = Path(ft.__file__).parent
API = "\n".join(path.read_text() for path in sorted((PACKAGE.parent / "docs" / "api").glob("*.md")))

ORDER = """
_types _cache _compiler losses _covariance _rule _cells heads _network _modules _recurrence _credit
_engine _learner testing tasks _runs _options _graph _native _export _distributed experiment paper
stream rl sweep cli __main__
""".split()
"""Data flows one way: a module imports only from those before it."""
KINDS = {"experiment", "stream", "rl"}
"""Kinds of runs, which do not know each other, nor what is made of them."""
FLOORS = "read experts model runs python serve".split()
"""Folders of `foretrace.stream`; each imports from those before it alone."""
WALL = 84
"""Number of names of the core that streams use beside reading; the goal is 40."""


def imported(path):
    """List the names that a file imports, as tuples of their parts."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names] if node.module else []
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (tuple(name.split(".")) for name in names)


def rooms(path, *above):
    """Return the rooms of the package, or of a folder of it, that a file imports from."""
    room = ("foretrace", *above)
    names = [name for name in imported(path) if len(name) > len(room)]
    return {name[len(room)] for name in names if name[: len(room)] == room}


def test_no_file_imports_itself_through_others():
    files = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        files[name.removesuffix(".__init__")] = path
    asked = {
        name: {
            node.module
            if f"{node.module}.{alias.name}" not in files
            else f"{node.module}.{alias.name}"
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("foretrace")
            for alias in node.names
        }
        for name, path in files.items()
    }
    assert [*graphlib.TopologicalSorter(asked).static_order()]


@pytest.mark.parametrize("name", ORDER)
def test_imports_go_one_way(name):
    before = {*ORDER[: ORDER.index(name) + 1]}
    before -= (KINDS | {"paper"}) - {name} if name in KINDS else set()
    file = PACKAGE / f"{name}.py"
    for path in [file] if file.exists() else (PACKAGE / name).rglob("*.py"):
        others = rooms(path)
        assert others & {*ORDER} <= before, path.name
        # A public name from the package's page.
        assert others <= {*ORDER} or "testing" in before, path.name


@pytest.mark.parametrize("name", FLOORS)
def test_floors_of_streams_stand_on_those_before(name):
    assert {path.stem for path in (PACKAGE / "stream").iterdir() if path.is_dir()} - {
        "__pycache__"
    } == {*FLOORS}
    for path in (PACKAGE / "stream" / name).rglob("*.py"):
        assert rooms(path, "stream") <= {*FLOORS[: FLOORS.index(name) + 1]}, path.name


def test_rows_are_read_without_jax():
    code = f"""
import importlib, pathlib, sys, types
package = sys.modules["foretrace"] = types.ModuleType("foretrace")  # its page imports all rooms
package.__path__ = [{str(PACKAGE)!r}]
files = pathlib.Path({str(PACKAGE)!r}, "stream", "read").glob("*.py")
found = [importlib.import_module(f"foretrace.stream.read.{{file.stem}}") for file in files]
print(len(found) > 10, "jax" in sys.modules)
"""
    assert printed(sys.executable, "-c", code).split() == ["True", "False"]
    for path in (PACKAGE / "stream" / "read").glob("*.py"):
        assert rooms(path) <= {"_runs", "stream"}, path.name
        assert "jax" not in {name[0] for name in imported(path)}, path.name


def test_streams_use_few_names_of_the_core():
    files = (PACKAGE / "stream").rglob("*.py")
    names = {name for path in files if path.parent.name != "read" for name in imported(path)}
    wall = sorted(".".join(name[1:]) for name in names if name[0] == "foretrace")
    wall = [name for name in wall if not name.startswith("stream.")]
    assert len(wall) <= WALL, "\n".join(wall)


def test_streams_build_and_take_apart_by_name():
    trees = {path.name: ast.parse(path.read_text()) for path in (PACKAGE / "stream").rglob("*.py")}
    nodes = [(name, node) for name, tree in trees.items() for node in ast.walk(tree)]
    of_parts = [node for _, node in nodes if isinstance(node, ast.ClassDef) and node.bases]
    kinds = {node.name for node in of_parts if ast.unparse(node.bases[0]) == "NamedTuple"}
    assert len(kinds) > 20
    for name, node in nodes:
        where = f"{name}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Call) and ast.unparse(node.func) in kinds:
            assert len(node.args) <= 3, where
        taken = node.value if isinstance(node, ast.Return) else node
        if isinstance(taken, ast.Tuple) and (taken is not node or isinstance(node.ctx, ast.Store)):
            assert len(taken.elts) <= 3, where


def test_every_module_has_a_place_in_the_order():
    found = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert found - {"__init__", "__pycache__"} == {*ORDER}


@pytest.mark.parametrize("room", ["", "experiment", "sweep", "testing", "rl"])
def test_every_public_name_is_documented_and_on_a_page_of_the_api(room):
    place = importlib.import_module(f"foretrace.{room}".rstrip("."))
    found = {
        name: value
        for name, value in vars(place).items()
        if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert len(found) >= 3
    for name, value in found.items():
        on_page = (f'.{name}"', f"`{name}`,") if room else (f'foretrace.{name}"',)
        assert any(words in API for words in on_page), name
        assert value.__doc__ or not callable(value), name


def test_the_online_rule_has_two_names():
    assert ft.ONLINE is ft.SNAP1


def test_importing_loads_no_program_parts_and_public_rooms_on_demand():
    code = """
import sys, foretrace as ft
print([m for m in ("tyro", "rich", "matplotlib", "river", "optuna") if m in sys.modules])
print(*(getattr(ft, name).__name__ for name in ("experiment", "sweep", "tasks")))
"""
    rooms = "foretrace.experiment foretrace.sweep foretrace.tasks"
    assert printed(sys.executable, "-c", code).splitlines() == ["[]", rooms]
