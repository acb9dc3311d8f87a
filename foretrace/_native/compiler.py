"""Compile a C program once, with the system's compiler or the wheel `ziglang`."""

import atexit
import contextlib
import ctypes
import functools
import hashlib
import importlib.util
import logging
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

from foretrace._cache import VARIABLE, is_own, own_folder, processor
from foretrace._runs.files import write_atomically

_log = logging.getLogger(__name__)

FLAGS = (
    "-std=c99",
    "-O3",
    "-march=native",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fassociative-math",
    "-fno-signed-zeros",
    "-ffp-contract=fast",
)
"""Compiler flags of a step. Sums may be reordered; NaN and infinity keep their meaning."""


class CompilerError(RuntimeError):
    """There is no C compiler, or the compiler refuses a program."""


def find_compiler(required: bool = True) -> list[str]:
    """Return the command of a C compiler: `CC`, otherwise `cc`, otherwise the wheel `ziglang`.

    Args:
        required: whether to raise an error if there is no compiler. If not, the command is empty.

    Raises:
        CompilerError: there is no C compiler, or `CC` does not name a command.
    """
    if (given := os.environ.get("CC", "")) != "":
        return _command_in(given)
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return [found]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    if not required:
        return []
    raise CompilerError(
        "no C compiler was found (cc, gcc or clang, or the command in the variable CC); install "
        "one, such as the package gcc of the system, or the wheel ziglang: pip install "
        "'foretrace[native]'"
    )


def _command_in(given: str) -> list[str]:
    """Return the command in the variable CC, with the full path of its program."""
    try:
        words = shlex.split(given)
    except ValueError:  # a quotation without an end
        words = []
    found = shutil.which(words[0]) if words else None
    if found is None:
        raise CompilerError(
            f"the variable CC={given!r} names no program that can be started, expected the command "
            "of a C compiler, such as CC=gcc; correct it or unset it"
        )
    return [os.path.abspath(found), *words[1:]]


def code_size(source: Path, compiler: list[str]) -> int | None:
    """Return the size of a C file's code and constants, compiled for size; None if unknown.

    The size is unknown without a compiler, or without the program `size` that belongs to it.
    """
    size = shutil.which("size")
    if size is None or not compiler:
        return None
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "program.o"
        call = [*compiler, "-std=c99", "-Os", "-c", "-o", str(target), source.name]
        _run(call, source.parent)
        found = _run([size, str(target)])
    # A line of names, and a line of numbers, of which the first is the size of code and constants.
    numbers = found.stdout.split("\n")[1:2]
    return int(numbers[0].split()[0]) if found.returncode == 0 and numbers else None


def compiled(source: str, header: str, name: str) -> ctypes.CDLL:
    """Return a loaded program. Its text is compiled once for each kind of machine.

    Args:
        source: text of the C file.
        header: text of its header file.
        name: name of the header file without suffix.

    Raises:
        CompilerError: there is no compiler, it reports an error, or the program cannot be loaded.
    """
    compiler = find_compiler()
    command = [*compiler, *FLAGS]
    version = _run([*compiler, "--version"]).stdout.split("\n")[0]
    key = _digest(
        "\0".join((source, header, *command, version, platform.machine(), processor())).encode()
    )[:32]
    folder = _folder()
    path = _kept(folder, key)
    if path is None:
        began = time.monotonic()
        _log.info("compiling %d lines of C with %s …", source.count("\n"), shlex.join(compiler))
        program = _compile(command, source, header, name)
        _log.info("compiled in %.1f s; kept in %s", time.monotonic() - began, folder)
        path = folder / f"{key}-{_digest(program)}.so"
        write_atomically(path, program)
        path.chmod(0o600)  # for any umask: a file that others can write is not loaded
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise CompilerError(
            f"the compiled program cannot be loaded ({error}); choose a folder from which programs "
            f"may be loaded by the variable {VARIABLE}"
        ) from error


def _folder() -> Path:
    """Return the folder of compiled programs in the cache directory.

    If other users may write to it, or this user may not, a temporary folder of this process is
    used.

    Warns:
        UserWarning: the folder in the cache directory is not used.
    """
    try:
        return own_folder("native")
    except (OSError, RuntimeError) as error:  # there is no home directory, or a file has this name
        return _private_folder(str(error))


@functools.cache
def _private_folder(reason: str) -> Path:
    warnings.warn(
        f"{reason}; compiled programs are kept until this process ends, in a folder of its own: "
        f"choose a folder that only you can write to by the variable {VARIABLE}",
        stacklevel=3,
    )
    folder = tempfile.mkdtemp(prefix="foretrace-native-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _kept(folder: Path, key: str) -> Path | None:
    """Return the stored program of a key if it is complete and safe; None otherwise.

    The name of a file ends with the digest of its bytes. This reveals a truncated file, which would
    crash the process when it is loaded.
    """
    for path in folder.glob(f"{key}-*.so"):
        with contextlib.suppress(OSError):
            trusted = not path.is_symlink() and is_own(path.stat())
            if trusted and path.stem == f"{key}-{_digest(path.read_bytes())}":
                return path
    return None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _compile(command: list[str], source: str, header: str, name: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / f"{name}.h").write_text(header)
        (Path(folder) / f"{name}.c").write_text(source)
        target = Path(folder) / "program.so"
        call = [*command, "-shared", "-fPIC", "-o", str(target), f"{name}.c", "-lm"]
        done = _run(call, folder)
        if done.returncode or not target.exists():
            stopped = f"it was stopped by signal {-done.returncode}" if done.returncode < 0 else ""
            reason = done.stderr.strip()[-2000:] or stopped or f"exit status {done.returncode}"
            raise CompilerError(f"{shlex.join(call)} failed:\n{reason}")
        return target.read_bytes()


def _run(
    call: list[str], folder: str | os.PathLike[str] | None = None
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            call, cwd=folder, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        raise CompilerError(f"{shlex.join(call)} cannot be started: {error}") from error
