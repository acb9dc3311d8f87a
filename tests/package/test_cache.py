"""What commands compile is kept for the next one, in a folder that nobody else can write to."""

import os
import sys
import warnings

import jax
import jax.numpy as jnp
from jax.experimental.compilation_cache import compilation_cache
from processes import printed

from foretrace import _cache
from foretrace.cli._main import _show_warning

PROGRAM = """
from foretrace._cache import keep_compiled

keep_compiled()
import jax

print(jax.jit(lambda x: 2 * x + 1)(1.0), jax.config.jax_compilation_cache_dir)
"""


def ran(cache):
    """Return the folder where a process keeps its programs, and them; it prints nothing else."""
    env = {name: value for name, value in os.environ.items() if "CACHE" not in name}
    env["FORETRACE_CACHE"] = str(cache)
    value, folder = printed(sys.executable, "-c", PROGRAM, env=env).split()
    assert value == "3.0"
    return folder, {path.name for path in cache.rglob("*-cache")}


def test_the_second_process_compiles_nothing_and_keeps_nothing_where_others_write(
    tmp_path, monkeypatch
):
    folder, kept = first = ran(tmp_path)
    assert folder.startswith(str(tmp_path)) and kept and ran(tmp_path) == first
    monkeypatch.setenv("FORETRACE_CACHE", str(tmp_path))
    chosen, name = jax.config.jax_compilation_cache_dir, "JAX_COMPILATION_CACHE_DIR"
    _cache.keep_compiled()  # a folder that is named in JAX's own variable stays
    assert jax.config.jax_compilation_cache_dir == chosen == os.environ[name]
    monkeypatch.delenv(name)
    # Windows does not say who may write.
    for place, mode in ((folder, 0o720), (tmp_path, 0o702)) if hasattr(os, "getuid") else ():
        os.chmod(place, mode)
        _cache.keep_compiled()
        assert jax.config.jax_compilation_cache_dir == chosen and name not in os.environ
        os.chmod(place, 0o700)


def test_a_damaged_program_is_told_once_and_compiled_again(tmp_path, monkeypatch, capsys):
    def ran():
        compilation_cache.reset_cache()
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = _show_warning
            assert jax.jit(lambda x: 2 * x + 1)(jnp.ones(3)).sum() == 9
        return capsys.readouterr().err, [*tmp_path.glob("jit__lambda*-cache")]

    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    chosen = jax.config.jax_compilation_cache_dir
    try:
        jax.config.update("jax_compilation_cache_dir", str(tmp_path))
        (file,) = ran()[1]
        file.write_bytes(b"damaged")
        told, _ = ran()
        assert "for 'jit__lambda" in told and f"it is removed from {tmp_path}" in told
        assert ran() == ("", [file])
    finally:
        jax.config.update("jax_compilation_cache_dir", chosen)
        compilation_cache.reset_cache()


def test_the_oldest_programs_go(tmp_path, monkeypatch):
    monkeypatch.setattr(_cache, "MOST_BYTES", 250)
    for age, name in enumerate(("new", "middle", "old", "oldest")):
        (tmp_path / name).write_bytes(bytes(100))
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    (tmp_path / "folder").mkdir()
    os.utime(tmp_path / "folder", (1, 1))
    _cache._prune(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"new", "middle", "folder"}
