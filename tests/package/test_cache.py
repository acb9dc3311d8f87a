"""What commands compile is kept for the next one, in a folder that nobody else can write to."""

import os
import sys

import jax
import pytest
from processes import printed

from foretrace import _cache

PROGRAM = """
from foretrace._cache import keep_compiled

keep_compiled()
import jax

print(jax.jit(lambda x: 2 * x + 1)(1.0), jax.config.jax_compilation_cache_dir)
"""


def ran(cache):
    """Return the folder that a process keeps its programs in; it prints nothing else."""
    kept = {name: value for name, value in os.environ.items() if "CACHE" not in name}
    env = kept | {"FORETRACE_CACHE": str(cache)}
    value, folder = printed(sys.executable, "-c", PROGRAM, env=env).split()
    assert value == "3.0"
    return folder


def programs(cache):
    return {path.name for path in cache.rglob("*-cache")}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Return a cache, the folder in it where a first process has kept programs, and these."""
    cache = tmp_path_factory.mktemp("cache")
    return cache, ran(cache), programs(cache)


def test_the_second_process_compiles_nothing(cache):
    cache, folder, kept = cache
    assert folder.startswith(str(cache)) and kept
    assert ran(cache) == folder and programs(cache) == kept


def test_a_cache_that_jax_was_told_of_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("FORETRACE_CACHE", str(tmp_path / "own"))
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "chosen"))
    before = jax.config.jax_compilation_cache_dir
    _cache.keep_compiled()
    assert jax.config.jax_compilation_cache_dir == before and not list(tmp_path.iterdir())


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="Windows does not say who may write")
def test_a_folder_that_others_can_write_to_is_not_used(cache, monkeypatch):
    cache, folder, _ = cache
    monkeypatch.setenv("FORETRACE_CACHE", str(cache))
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    before = jax.config.jax_compilation_cache_dir
    for place, mode in ((folder, 0o720), (cache, 0o702)):
        os.chmod(place, mode)
        _cache.keep_compiled()
        assert jax.config.jax_compilation_cache_dir == before != folder
        assert "JAX_COMPILATION_CACHE_DIR" not in os.environ
        os.chmod(place, 0o700)


def test_the_oldest_programs_go(tmp_path, monkeypatch):
    monkeypatch.setattr(_cache, "MOST_BYTES", 250)
    for age, name in enumerate(("new", "middle", "old", "oldest")):
        (tmp_path / name).write_bytes(bytes(100))
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    (tmp_path / "folder").mkdir()
    os.utime(tmp_path / "folder", (1, 1))
    _cache._prune(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"new", "middle", "folder"}
