"""The documentation runs, and what it says of the package, its files and its records is so."""

import doctest
import importlib
import json
import os
import pkgutil
import re
import runpy
import sys
from pathlib import Path

import jax
import pytest
from processes import printed
from tiers import slow, slower

import foretrace as ft
from foretrace._cells.registry import CELLS
from foretrace._rule import RULES

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(ft.__path__, "foretrace.")
    if not module.name.endswith("__main__")
)
TEXTS = {
    str(path.relative_to(ROOT)): path.read_text()
    for place in ("*.md", "docs/**/*.md", "results/*.md", "benchmarks/**/*.md")
    for path in sorted(ROOT.glob(place))
}
RECORDS = {
    str(path.relative_to(ROOT)): path.read_text() for path in ROOT.glob("benchmarks/*/*.jsonl")
}
PAGES = [page for page in TEXTS if page.startswith("docs/") and "/tutorials/" not in page]
"""Pages on which all blocks of code together are one program; a tutorial has a script."""
DEAR = "_cells _credit _engine _export _learner _modules _native _network _runs.checkpoint".split()
DEAR += "experiment heads losses rl stream tasks testing".split()
"""First parts of the names of modules with examples that compile. The fast tier skips them."""
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.py"))


def blocks(page, kind="python"):
    return re.findall(rf"```{kind}\n(.*?)```", TEXTS[page], flags=re.DOTALL)


def needs_sktime(text):
    if "sktime" in text.lower():
        pytest.importorskip("sktime", reason="pip install 'foretrace[sktime]'")


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize(
    "name", slower(MODULES, {name for name in MODULES if name[10:].startswith(tuple(DEAR))})
)
def test_docstring_examples(name):
    needs_sktime(name)
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE).failed == 0


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize("page", slower(["README.md", *PAGES], PAGES))
def test_code_on_pages_runs(page, tmp_path, monkeypatch, capsys):
    """As a reader would type it in a clone; titled blocks are excerpts."""
    code = "\n".join(blocks(page))
    needs_sktime(code)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    exec(compile(code, page, "exec"), {"__name__": "page"})
    if page in ("README.md", "docs/quickstart.md"):
        for line in capsys.readouterr().out.splitlines()[: None if page == "README.md" else 1]:
            assert re.search(rf"^(.*# )?{re.escape(line)}$", TEXTS[page], flags=re.MULTILINE), line


def cells(script):
    """Return the code of each cell of a tutorial."""
    parts = re.split(r"^# %%", script.read_text(), flags=re.MULTILINE)
    return [
        part.partition("\n")[2].strip() for part in parts[1:] if not part.startswith(" [markdown]")
    ]


@pytest.mark.parametrize("script", TUTORIALS, ids=lambda script: script.stem)
def test_pages_of_tutorials_are_those_of_their_scripts(script):
    page = str(script.with_suffix(".md").relative_to(ROOT))
    shown = [code.strip() for code in blocks(page)]
    assert shown == cells(script), f"run scripts/tutorials {script.stem}"
    notebook = json.loads(script.with_suffix(".ipynb").read_text())
    code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [part.strip() for part in code] == shown
    figures = re.findall(r"!\[.*?\]\((.*?)\)", TEXTS[page])
    assert figures and all((script.parent / name).stat().st_size > 1000 for name in figures)


@pytest.mark.program
@pytest.mark.parametrize(
    "script",
    [one if one.stem in ("your_csv", "your_cell") else slow(one) for one in TUTORIALS],
    ids=lambda script: script.stem,
)
def test_tutorials_run(script, tmp_path):
    needs_sktime(script.read_text())
    env = os.environ | {"MPLBACKEND": "Agg"}
    printed(sys.executable, "-W", "ignore", script, cwd=tmp_path, env=env)


def test_every_page_is_in_the_navigation_and_one_click_from_the_front_page():
    pages = {page.removeprefix("docs/") for page in TEXTS if page.startswith("docs/")}
    navigation = re.findall(r'"([\w/]+\.md)"', (ROOT / "zensical.toml").read_text())
    linked = re.findall(r"\]\(([\w/]+\.md)", TEXTS["docs/index.md"])
    assert {*navigation} == pages == {*linked, "index.md"}


def anchors(page):
    """Return the names of a page's headings, as the site makes them, and of the API on it."""
    slugify = pytest.importorskip("markdown").extensions.toc.slugify
    titles = re.findall(r"^#+ (.*)", prose(page), flags=re.MULTILINE)
    names = re.findall(r'^<a id="(\S+)"></a>', TEXTS[page], flags=re.MULTILINE)
    return {*names, *(slugify(re.sub(r"[*`]", "", title), "-") for title in titles)}


def prose(page):
    return re.sub(r"^```.*?^```", "", TEXTS[page], flags=re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", [page for page in TEXTS if "benchmarks/pages/" not in page])
def test_links_lead_to_pages_and_headings_that_are_there(page):
    pytest.importorskip("markdown.extensions.toc")
    for link in re.findall(r"\]\(((?!https?:)[^)\s]+)\)", prose(page)):
        name, _, heading = link.partition("#")
        target = (ROOT / page).parent.joinpath(name).resolve() if name else ROOT / page
        assert target.exists(), link
        if heading and target.suffix == ".md":
            assert heading in anchors(str(target.relative_to(ROOT))), link


@pytest.mark.parametrize("name", sorted(({*TEXTS} | {*RECORDS}) - {"CHANGELOG.md"}))
def test_every_script_and_file_that_a_page_or_a_record_names_is_there(name):
    text = TEXTS.get(name) or RECORDS[name]
    earlier = re.findall(r"`\w+:(benchmarks/[\w/]+)\.py`", TEXTS["benchmarks/README.md"])
    for script in set(re.findall(r"python -m (benchmarks[.\w]+)", text)):
        path = script.replace(".", "/")
        there = any((ROOT / f"{path}{end}").exists() for end in (".py", "/__main__.py"))
        assert there or (name in RECORDS and path in earlier), script
    # A path behind a commit is one of the history.
    files = re.findall(r"(?<!\w:)\bbenchmarks/[\w/]+\.(?:py|jsonl|json|md)\b", text)
    assert name in RECORDS or all((ROOT / file).exists() for file in files), files


@pytest.mark.parametrize("name", sorted(path.stem for path in ROOT.glob("benchmarks/pages/*.md")))
def test_pages_of_results_are_what_the_records_say(benchmark, name):
    pages = benchmark("pages.template")
    assert pages.filled(name) == TEXTS[pages.PAGES[name]], "python -m benchmarks.pages"


@pytest.mark.parametrize("page", [page for page in TEXTS if page.startswith("docs/api/")])
def test_pages_of_the_api_are_what_the_source_says(page):
    if page == "docs/api/streams.md":
        pytest.importorskip("sktime")
        pytest.importorskip("river")
    written = runpy.run_path(str(ROOT / "scripts" / "api_pages.py"))["written"]
    assert TEXTS[page].count("<!-- api: ") >= 8
    assert written(TEXTS[page]) == TEXTS[page], "python scripts/api_pages.py"


def plain(text):
    """Return a page on one line, without the targets of links."""
    return " ".join(re.sub(r"\]\([^)]*\)", "]", text).split())


def test_every_claim_has_its_record_and_every_number_of_the_readme_is_a_claim():
    assert (len({*RULES.values()}), len(CELLS)) == (7, 14)
    rows = re.findall(r"^\| (.*) \| (.*) \|$", TEXTS["docs/contributing/claims.md"], re.MULTILINE)
    claims = [claim for row, _ in rows[2:] for claim in row.split("; ")]
    pages = plain(TEXTS["README.md"] + TEXTS["docs/index.md"])
    assert len(claims) > 30 and [claim for claim in claims if claim not in pages] == []
    for file in re.findall(r"`([\w.-]*/[\w./-]+\.\w+)`", " ".join(record for _, record in rows)):
        assert (ROOT / file).exists(), file
    # Of sentences: code is run, and the table beside others is written from records.
    rest = re.sub(r"```.*?```|^\|[^\n]*", "", TEXTS["README.md"], flags=re.DOTALL | re.MULTILINE)
    rest = plain(re.sub(r"\(2023\)|version \S+|Python \S+", "", rest))
    for claim in sorted(claims, key=len, reverse=True):
        rest = rest.replace(claim, "")
    assert re.findall(r".{0,30}\b\d.{0,9}", re.sub(r"`[^`]*`", "", rest)) == []


PARTS = [
    ("README.md", "readme", lambda page: page.text()),
    ("README.md", "streams", lambda page: f"{page.best_of('elec2', first=False)['rows']:,} rows"),
    ("docs/second_order.md", "memory", lambda page: page.held()),
    ("docs/streaming.md", "rules", lambda page: page.stale()),
]


@pytest.mark.parametrize(("page", "module", "part"), PARTS)
def test_a_part_of_a_page_is_what_the_records_say(benchmark, page, module, part):
    assert part(benchmark(f"pages.{module}")) in TEXTS[page]


def test_the_page_of_rules_says_what_is_carried():
    options = {"model_size": 128, "depth": 4, "cell": ft.LRU.factory(state_size=64)}
    network = jax.eval_shape(lambda key: ft.Network(8, 14, **options, key=key), jax.random.key(0))
    # Depth, in the second table groups and modules, and the number of elements.
    rows = r"^\| (`BPTT`|\d)[^|]*\|(?: (all |\d )?\| (all |\d+ )?\|)? ([\d,]+) \| [\d.]+ \|"
    found = re.findall(rows, TEXTS["docs/rules.md"], flags=re.MULTILINE)
    assert len(found) == 16
    for depth, groups, modules, count in found:
        options = {"depth": depth, "groups": groups.strip(), "modules": modules.strip()}
        words = [f"{key}={value}" for key, value in options.items() if value.strip("0").isdigit()]
        rule = "bptt" if "BPTT" in depth else f"online({', '.join(words)})" if words else "online"
        assert f"{ft.carry_size(network, ft.rule(rule)):,}" == count, rule


def test_every_message_of_the_troubleshooting_page_exists():
    sources = "\n".join(path.read_text() for path in (ROOT / "foretrace").rglob("*.py"))
    # Parts of a message stand on lines of their own, and names in braces.
    said = re.sub(r'"\s*\n\s*(?:\+\s*)?f?"', "", sources)
    page = TEXTS["docs/troubleshooting.md"]
    messages = re.findall(r"^\| `([^`|]+)`", page, flags=re.MULTILINE)
    parts = [part for message in messages for part in message.split("…")]
    assert len(messages) > 20
    assert [part for part in parts if part.strip() not in said] == []
