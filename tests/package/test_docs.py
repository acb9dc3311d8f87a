"""What the documentation says is run: every docstring example, and the Python of README and docs."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import jax
import jaxtyping
import pytest
from tiers import slower

import foretrace as ft

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    module.name for module in pkgutil.walk_packages(ft.__path__, "foretrace.") if not module.name.endswith("__main__")
)
DEAR = {
    "foretrace.testing._check",  # `test_cells.py` checks more
    "foretrace.stream._forecaster",
    "foretrace.stream._river",
    "foretrace._engine.alignment",
    "foretrace._learner.fit",
    "foretrace._learner.learner",
    *(
        f"docs/{name}.md"
        for name in ("credit", "credit_choose", "extending", "quickstart", "streaming", "streams", "sweeps")
    ),
}
"""Examples that take more than a few seconds."""
PAGES = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md"))]


@pytest.fixture(autouse=True)
def as_a_reader_runs_it():
    """Readers have JAX's own defaults, not the strictness of these tests."""
    jaxtyping.config.update("jaxtyping_disable", True)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize("name", slower(MODULES, DEAR))
def test_docstring_examples(name):
    results = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert results.failed == 0


def test_most_modules_have_an_example():
    finder = doctest.DocTestFinder()
    shown = [name for name in MODULES if any(t.examples for t in finder.find(importlib.import_module(name)))]
    assert len(shown) >= 12


@pytest.mark.parametrize("page", slower(PAGES, DEAR))
def test_code_on_pages_runs(page, tmp_path, monkeypatch):
    """The blocks of a page are one program, as a reader would type them (titled blocks are excerpts, not programs)."""
    monkeypatch.chdir(tmp_path)
    code = "\n".join(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL))
    exec(compile(code, page, "exec"), {"__name__": "page"})
    assert page != "README.md" or "learner.step" in code
