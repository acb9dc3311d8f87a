"""A release is one command; the version is the same wherever it stands."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from processes import printed

ROOT = Path(__file__).parents[2]
NAMED = "README.md pyproject.toml CHANGELOG.md CITATION.cff CONTRIBUTING.md LICENSE .gitignore"
WHO = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def version_of(root):
    return tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]


def test_readme_and_package_have_one_version_and_citation_and_changes_the_last_release():
    assert f"· version {version_of(ROOT)}," in (ROOT / "README.md").read_text()
    (cited,) = re.findall(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    released = re.findall(r"^## \[(\d.*)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released[0] == cited


@pytest.mark.parametrize(("version", "words"), [("1.0", "three numbers"), ("0.1.0", "later one")])
def test_a_version_that_cannot_be_released_is_refused(version, words):
    command = [sys.executable, ROOT / "scripts" / "release", version]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and words in done.stderr


@pytest.mark.slow
def test_a_release_is_installed_from_an_index(tmp_path):
    """In a copy, to a local index; fetches the tools that build it."""
    root, index = tmp_path / "copy", tmp_path / "index" / "foretrace"
    for name in ("foretrace", "scripts"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in NAMED.split():
        shutil.copy(ROOT / name, root)
    project = (root / "pyproject.toml").read_text()
    project = project.replace('address = ""', 'address = "https://example.org/f"')
    (root / "pyproject.toml").write_text(project)
    env = os.environ | WHO | {"PYTHON": sys.executable}

    def git(*words):
        return printed("git", *words, cwd=root, env=env)

    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "-m", "all")
    printed(root / "scripts" / "release", "9.0.0", "--build-only", env=env)
    assert git("tag").split() == ["v9.0.0"] and version_of(root) == "9.1.0.dev0"
    assert "\n## [9.0.0] - 20" in git("show", "v9.0.0:CHANGELOG.md") and not git("status", "-s")
    shutil.copytree(root / "dist", index)
    links = "".join(f'<a href="{file.name}">{file.name}</a>' for file in index.iterdir())
    (index / "index.html").write_text(links)
    pip = f"-m pip download --no-deps --dest got --index-url {index.parent.as_uri()} foretrace"
    printed(sys.executable, *pip.split(), cwd=tmp_path)
    with zipfile.ZipFile(tmp_path / "got" / "foretrace-9.0.0-py3-none-any.whl") as wheel:
        about = wheel.read("foretrace-9.0.0.dist-info/METADATA").decode()
    assert "Project-URL: Source, https://example.org/f\n" in about
