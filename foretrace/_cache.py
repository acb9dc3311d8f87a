"""The user's cache: folders for results that are costly to compute, and for compiled programs.

Programs are loaded only from a folder that no other user can write to.
"""

import hashlib
import os
import platform
import stat
import sys
from pathlib import Path

VARIABLE = "FORETRACE_CACHE"
"""Environment variable that names the cache directory."""

MOST_BYTES = 2**29
"""Total size of JAX's compiled programs above which the oldest ones are removed."""


def cache_root() -> Path:
    """Return the cache directory: `FORETRACE_CACHE`, or else `foretrace` in the user's cache.

    Raises:
        RuntimeError: the user has no home directory.
    """
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen).expanduser()
    places = {"darwin": "~/Library/Caches", "win32": "~/AppData/Local"}
    place = os.environ.get("XDG_CACHE_HOME") or places.get(sys.platform, "~/.cache")
    return Path(place).expanduser() / "foretrace"


def own_folder(name: str) -> Path:
    """Return a folder in the cache directory that only this user can write to.

    Args:
        name: name of the folder.

    Raises:
        OSError: the folder cannot be made, or another user may write to it.
        RuntimeError: the user has no home directory.
    """
    root = cache_root()
    for folder in (root, root / name):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not is_own(folder.lstat()) or not os.access(folder, os.R_OK | os.W_OK):
            raise OSError(f"{folder} belongs to another user, or others may write to it")
    return root / name


def is_own(found: os.stat_result) -> bool:
    """Return whether only this user can write a file or folder; always true on Windows."""
    return not hasattr(os, "getuid") or (
        found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def processor() -> str:
    """Return a text that identifies the instruction set for which programs are compiled."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    return next((line for line in text.split("\n") if line.startswith(("flags", "Features"))), "")


def keep_compiled() -> None:
    """Let JAX store compiled programs in the cache, for this process and for later ones.

    If JAX already has a cache folder, it is not changed. `JAX_ENABLE_COMPILATION_CACHE=0` switches
    the cache off. If there is no folder that only this user can write to, nothing is stored.
    """
    is_off = os.environ.get("JAX_ENABLE_COMPILATION_CACHE", "1").lower() in ("0", "false", "off")
    if is_off or os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        return
    kind = hashlib.sha256(f"{platform.machine()} {processor()}".encode()).hexdigest()[:12]
    try:
        folder = own_folder(f"jax-{kind}")
        _prune(folder)
    except (OSError, RuntimeError):
        return  # a command runs without the cache, too
    import jax

    for name, value in (
        ("jax_compilation_cache_dir", str(folder)),
        ("jax_persistent_cache_min_compile_time_secs", 0.0),
    ):
        jax.config.update(name, value)
        os.environ.setdefault(name.upper(), str(value))


def _prune(folder: Path) -> None:
    """Remove the oldest files of a folder until its total size is within `MOST_BYTES`."""
    found = [(path, path.stat()) for path in folder.iterdir() if path.is_file()]
    size = sum(one.st_size for _, one in found)
    for path, one in sorted(found, key=lambda pair: pair[1].st_mtime):
        if size <= MOST_BYTES:
            break
        path.unlink(missing_ok=True)  # another process may remove it, too
        size -= one.st_size
