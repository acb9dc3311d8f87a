"""Compile a C program once, with the machine's compiler or the wheel `ziglang`."""

import ctypes
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

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
"""Flags of a compiled step: sums may be reordered; NaN and infinity stay as they are."""


class CompilerError(RuntimeError):
    """There is no C compiler, or it does not compile a program."""


def find_compiler() -> list[str]:
    """Return the command of a C compiler: `CC`, else `cc`, else the wheel `ziglang`.

    Raises:
        CompilerError: there is none.
    """
    if given := os.environ.get("CC"):
        return shlex.split(given)
    for name in ("cc", "gcc", "clang"):
        if found := shutil.which(name):
            return [found]
    if importlib.util.find_spec("ziglang") is not None:
        return [sys.executable, "-m", "ziglang", "cc"]
    raise CompilerError(
        "no C compiler was found (cc, gcc or clang, or the command in the variable CC); install "
        "one, such as the package gcc of the system, or the wheel ziglang: pip install "
        "'foretrace[native]'"
    )


def code_size(source: Path) -> int | None:
    """Return the bytes of code and constants of a C file, compiled for size. None if unknown.

    It is unknown without a compiler, or without the program `size` that comes with one.
    """
    try:
        command = find_compiler()
    except CompilerError:
        return None
    size = shutil.which("size")
    if size is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "program.o"
        call = [*command, "-std=c99", "-Os", "-c", "-o", str(target), source.name]
        subprocess.run(call, cwd=source.parent, capture_output=True, check=False)
        found = subprocess.run([size, str(target)], capture_output=True, text=True, check=False)
    # A line of names, and one of numbers that begins with that of code and constants.
    numbers = found.stdout.split("\n")[1:2]
    return int(numbers[0].split()[0]) if found.returncode == 0 and numbers else None


def cache_folder() -> Path:
    """Return the folder of compiled programs: FORETRACE_CACHE, else the user's cache folder.

    Raises:
        CompilerError: somebody else may write into it, so that what it holds cannot be trusted.
    """
    root = os.environ.get("FORETRACE_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "foretrace"
    )
    folder = Path(root) / "native"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if hasattr(os, "getuid"):
        found = folder.stat()
        if found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise CompilerError(
                f"{folder} belongs to another user, or others may write to it; choose another "
                "folder for compiled programs by the variable FORETRACE_CACHE"
            )
    return folder


def compiled(source: str, header: str, name: str) -> ctypes.CDLL:
    """Return a loaded program, compiled unless its text was compiled before on such a machine.

    Args:
        source: text of the C file.
        header: text of its header file.
        name: name of the header file without suffix.

    Raises:
        CompilerError: there is no compiler, or it finds an error.
    """
    command = [*find_compiler(), *FLAGS]
    key = "\0".join(
        (source, header, *command, _version(command[0]), platform.machine(), _processor())
    )
    path = cache_folder() / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.so"
    if not path.exists():
        _compile(command, source, header, name, path)
    return ctypes.CDLL(str(path))


def _compile(command: list[str], source: str, header: str, name: str, path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        (Path(folder) / f"{name}.h").write_text(header)
        (Path(folder) / f"{name}.c").write_text(source)
        target = Path(folder) / "program.so"
        call = [*command, "-shared", "-fPIC", "-o", str(target), f"{name}.c", "-lm"]
        done = subprocess.run(call, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode or not target.exists():
            raise CompilerError(f"{shlex.join(call)} failed:\n{done.stderr.strip()[-2000:]}")
        # Another process may have compiled the same: either file is right.
        os.replace(target, path)


def _version(compiler: str) -> str:
    found = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    return found.stdout.split("\n")[0]


def _processor() -> str:
    """Return what tells the processor's instructions; the flag -march=native uses all of them."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    return next((line for line in text.split("\n") if line.startswith(("flags", "Features"))), "")
