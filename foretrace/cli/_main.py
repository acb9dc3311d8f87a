"""The `foretrace` command, which runs the commands in `_commands`."""

import contextlib
import functools
import gc
import importlib.metadata
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import tyro

from foretrace._cache import keep_compiled
from foretrace._distributed.processes import LostProcessError
from foretrace._learner.state import UntrainedParameters
from foretrace._native.compiler import CompilerError
from foretrace._options.cells import FLAT
from foretrace._runs.follow import DivergenceError
from foretrace._runs.signals import STOPPED
from foretrace.cli._check import check
from foretrace.cli._export import write_graph
from foretrace.cli._help import helped
from foretrace.cli._options import COMMANDS
from foretrace.cli._recorded import HELP, check_cell_options, check_network, default_for, nearest
from foretrace.cli._reproduce import _report, _reproduce
from foretrace.cli._stream import predict, serve, stream
from foretrace.cli._sweep import sweep
from foretrace.cli._train import _align, _rl, _train

_OVERVIEW = """usage: foretrace COMMAND ...

Train recurrent networks online, in memory that does not grow with the stream.

{}

`foretrace COMMAND --help` explains a command; `foretrace --version` prints the version."""

_READER_LEFT = 141
"""Exit code after the reader of the output has left, as shells report SIGPIPE."""


def run() -> NoReturn:
    """Run the command line as the `foretrace` command and end the process."""
    keep_compiled()
    gc.freeze()  # what was imported stays, so the collector need not visit it again and again
    end = _main(sys.argv[1:])
    if end.at_once:
        _exit_at_once(end.code)
    sys.exit(end.code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line inside a Python program, and return the exit code.

    The exit code is 0 after success, 1 after a failure during the work, 2 after bad input, 130
    after a stop by Ctrl-C or SIGTERM, and 141 if the reader of standard output has left, as `head`
    does. FORETRACE_DEBUG=1 shows tracebacks.
    """
    return _main(sys.argv[1:] if arguments is None else list(arguments)).code


class _End(NamedTuple):
    """How a command has ended.

    Args:
        code: exit code.
        at_once: whether the process should end without the clean-up of JAX, which may crash or wait
            for long.
    """

    code: int
    at_once: bool = False


def _main(arguments: list[str]) -> _End:
    # Messages before long operations that print nothing, such as decoding images.
    logging.basicConfig(
        level=logging.WARNING, format="foretrace: %(message)s", stream=sys.stderr, force=True
    )
    logging.getLogger("foretrace").setLevel(logging.INFO)
    # For every schedule without a warm-up, Optax reports that it has none.
    logging.getLogger("absl").setLevel(logging.ERROR)
    try:
        code = _done(arguments)
        sys.stdout.flush()  # not at the end, where errors cannot be reported
        return _End(code)
    except SystemExit as end:  # the parser's errors, and its help
        return _End(int(end.code or 0))
    except BrokenPipeError:
        # Nothing may be written at the end of the process, either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _End(_READER_LEFT)
    except KeyboardInterrupt:
        print("foretrace: stopped", file=sys.stderr)
        # After an interrupted compilation, JAX may crash when the process ends.
        return _End(STOPPED, at_once=True)
    except LostProcessError as error:
        # JAX would wait for the lost process when this process ends.
        return _End(_explain(error), at_once=True)
    except Exception as error:
        return _End(_explain(error))


def _done(arguments: list[str]) -> int:
    """Show help or version, or run the command, and return the exit code.

    Raises:
        ValueError: the command does not exist, or there is no standard output.
    """
    if sys.stdout is None:
        # The next file that is opened would get its number, and all output of libraries.
        raise ValueError("standard output is closed; send it to a file, or to /dev/null")
    if arguments == ["--version"]:
        print(f"foretrace {importlib.metadata.version('foretrace')}")
        return 0
    if not arguments or arguments[0] in HELP:
        lines = [
            f"    {name:<11}{str(kind.__doc__).splitlines()[0]}" for name, kind in COMMANDS.items()
        ]
        print(_OVERVIEW.format("\n".join(lines)))
        return 0 if arguments else 2
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        warnings.simplefilter("always", UntrainedParameters)
        return _run(_parse(arguments))


def _exit_at_once(code: int) -> NoReturn:
    """End the process without the clean-up of the interpreter and of JAX."""
    for output in (sys.stdout, sys.stderr):
        # The reader of a pipe has left, or the file is closed.
        with contextlib.suppress(OSError, ValueError):
            output.flush()
    os._exit(code)


_DOES: dict[str, Callable[[Any], int]] = {
    "train": _train,
    "sweep": sweep,
    "rl": _rl,
    "stream": stream,
    "predict": predict,
    "serve": serve,
    "align": _align,
    "reproduce": _reproduce,
    "report": _report,
    "check": check,
    "export": write_graph,
}
"""The function of each command. `resume` becomes the command of the run."""


def _run(command: Any) -> int:
    return _DOES[type(command).__name__.lower()](command)


def _parse(arguments: list[str]) -> Any:
    """Parse a command line, with the defaults of the task, run or checkpoint that it names.

    Raises:
        ValueError: the command, task, run or checkpoint does not exist.
    """
    name, *words = arguments
    if name not in COMMANDS:
        raise ValueError(f"there is no command {name!r}; {nearest(name, COMMANDS)}")
    default, options = default_for(name, words)
    parse = functools.partial(
        tyro.cli,
        COMMANDS[name] if default is None else type(default),
        prog=" ".join(["foretrace", name, *words[: len(words) - len(options)]]),
        args=options,
        default=tyro.MISSING_NONPROP if default is None else default,
    )
    with FLAT:
        command = helped(name, parse) if HELP & {*options} else parse()
    check_network(options, command)
    check_cell_options(options, command)
    return command


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"foretrace: warning: {message}{_remove_unread(str(message))}", file=sys.stderr)


def _remove_unread(warning: str) -> str:
    """Remove and report a compiled program that JAX cannot read and would never overwrite.

    The warning of JAX names the program, but not its file. All files of this name are removed.
    """
    found = re.match("Error reading persistent compilation cache entry for '(.*?)'", warning)
    if not found or not (folder := os.environ.get("JAX_COMPILATION_CACHE_DIR")):
        return ""
    try:
        for path in Path(folder).glob(f"{found[1]}-*"):
            path.unlink(missing_ok=True)  # another process may remove it, too
    except OSError as error:
        return f"; it cannot be removed ({error}): empty {folder}"
    return f"; it is removed from {folder} and compiled again"


def _explain(error: Exception) -> int:
    """Print an error as one line, and return the exit code."""
    if os.environ.get("FORETRACE_DEBUG", "0") not in ("", "0"):
        traceback.print_exception(error)
    text = " ".join(str(error).split())
    known = isinstance(error, ValueError | OSError | DivergenceError | CompilerError)
    if not known:
        text = f"{type(error).__name__}: {text} (unexpected; FORETRACE_DEBUG=1 shows where)"
    print(f"foretrace: error: {text}", file=sys.stderr)
    bad_input = isinstance(error, ValueError | FileNotFoundError)
    return 2 if bad_input else 1
