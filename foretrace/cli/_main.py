"""The `foretrace` command: what each of `_commands` does."""

import contextlib
import difflib
import importlib.metadata
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import tyro

from foretrace._cache import keep_compiled
from foretrace._distributed.processes import LostProcessError
from foretrace._learner.state import UntrainedParameters
from foretrace._native.compiler import CompilerError
from foretrace._runs.loop import DivergenceError
from foretrace._runs.signals import STOPPED
from foretrace.cli._check import check
from foretrace.cli._export import write_graph
from foretrace.cli._options import (
    COMMANDS,
    RL,
    Align,
    Check,
    Command,
    Export,
    Predict,
    Report,
    Reproduce,
    Stream,
    Subcommand,
    Sweep,
    Train,
)
from foretrace.cli._recorded import (
    RESUMED,
    check_network,
    check_task,
    default_for,
    default_of_task,
    without_command,
)
from foretrace.cli._recorded import spelled_out as with_run_dir
from foretrace.cli._reproduce import _report, _reproduce
from foretrace.cli._stream import predict, stream
from foretrace.cli._sweep import sweep
from foretrace.cli._train import _align, _rl, _train

_READER_LEFT = 141
"""Exit code of a program whose reader left, as shells count SIGPIPE."""


def run() -> NoReturn:
    """Be the `foretrace` command: run the command line and end the process."""
    keep_compiled()
    end = _main(sys.argv[1:])
    if end.at_once:
        _exit_at_once(end.code)
    sys.exit(end.code)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line within a Python program; return the exit code.

    0 done, 1 failed on the way, 2 bad input, 75 budget of time spent, 130 stopped by Ctrl-C or
    SIGTERM, 141 the reader of standard output left, as `head` does; FORETRACE_DEBUG=1 shows
    tracebacks.
    """
    return _main(sys.argv[1:] if arguments is None else list(arguments)).code


class _End(NamedTuple):
    """How a command ended.

    Args:
        code: exit code.
        at_once: whether the process should end without the clean-up of JAX, which may crash or wait
            for long.
    """

    code: int
    at_once: bool = False


def _main(arguments: list[str]) -> _End:
    # What takes long before anything else is shown, such as decoding images.
    logging.basicConfig(
        level=logging.WARNING, format="foretrace: %(message)s", stream=sys.stderr, force=True
    )
    logging.getLogger("foretrace").setLevel(logging.INFO)
    # Optax notes on every schedule without a warm-up that it has none.
    logging.getLogger("absl").setLevel(logging.ERROR)
    try:
        _check_command(arguments)
        code = _done(_spelled_out(arguments))
        sys.stdout.flush()  # not at the end of the process, where nothing could be said any more
        return _End(code)
    except BrokenPipeError:
        # Nothing may be written at the end of the process either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _End(_READER_LEFT)
    except KeyboardInterrupt:
        print("foretrace: stopped", file=sys.stderr)
        # After an interrupted compilation, JAX's own way out may crash.
        return _End(STOPPED, at_once=True)
    except LostProcessError as error:
        # JAX's own way out waits for the process that is gone.
        return _End(_explain(error), at_once=True)
    except Exception as error:
        return _End(_explain(error))


def _done(arguments: list[str]) -> int:
    """Show the help that is asked for, or run the command; return the exit code."""
    if arguments == ["--version"]:
        print(f"foretrace {importlib.metadata.version('foretrace')}")
        return 0
    if {"-h", "--help"} & set(arguments):
        try:
            _parse_with(arguments, default_of_task(arguments, source="FILE"))
        except SystemExit as end:
            return int(end.code or 0)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        warnings.simplefilter("always", UntrainedParameters)
        command = _parse(arguments)
        return _run(command, arguments)


def _check_command(arguments: list[str]) -> None:
    """Check that there is such a command, and a standard output.

    Raises:
        ValueError: there is none.
    """
    if sys.stdout is None:
        # The next file that is opened would take its place, and get what libraries print.
        raise ValueError("standard output is closed; send it to a file, or to /dev/null")
    if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        near = difflib.get_close_matches(arguments[0], COMMANDS, 1)
        hint = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(COMMANDS)}"
        raise ValueError(f"there is no command {arguments[0]!r}; {hint}")


def _exit_at_once(code: int) -> NoReturn:
    """End the process without the clean-up of the interpreter and of JAX."""
    for output in (sys.stdout, sys.stderr):
        # A pipe that nobody reads any more, or a closed file.
        with contextlib.suppress(OSError, ValueError):
            output.flush()
    os._exit(code)


_DOES: dict[type, Callable[[Any], int]] = {
    Train: _train,
    Sweep: sweep,
    RL: _rl,
    Stream: stream,
    Predict: predict,
    Align: _align,
    Report: _report,
    Check: check,
    Export: write_graph,
}
"""What each command does but `reproduce`, which says its own command line again."""


def _run(command: Subcommand, arguments: list[str]) -> int:
    return (
        _reproduce(command, arguments)
        if isinstance(command, Reproduce)
        else _DOES[type(command)](command)
    )


def _parse(arguments: list[str]) -> Subcommand:
    """Parse a command line, with the named task's, run's or checkpoint's defaults."""
    default = default_for(arguments)
    command = _parse_with(arguments, default)
    check_task(default, command)
    check_network(arguments, command)
    return command


def _spelled_out(arguments: list[str]) -> list[str]:
    """Return a command line without the short forms that are more than another name of one option.

    >>> _spelled_out(["train", "--data", "my.npz", "--cell", "gru"])
    ['train', 'own', 'network.cell:gru', '--data', 'my.npz']
    >>> _spelled_out(["train", "--resume", "runs/a"])
    ['train', '--run-dir', 'runs/a', '--resume']
    """
    if not arguments or arguments[0] not in (*RESUMED, "align"):
        return arguments
    command, *words = arguments
    if command in RESUMED:
        words = with_run_dir(words)
    if command == "sweep":
        words = without_command(words)
    if command == "stream" or words[:1] == ["stream"]:
        return [command, *words]
    if (
        command != "rl"
        and any(word.split("=")[0] == "--data" for word in words)
        and words[0].startswith("-")
    ):
        words = ["own", *words]
    cells = []
    for at, word in reversed(list(enumerate(words))):
        if word == "--cell" and at + 1 < len(words):
            cells = [f"network.cell:{words[at + 1]}"]
            del words[at : at + 2]
        elif word.startswith("--cell="):
            cells = [f"network.cell:{word.removeprefix('--cell=')}"]
            del words[at]
    task = 0 if words and words[0].startswith("-") else 1
    return [command, *words[:task], *cells, *words[task:]]


def _parse_with(arguments: list[str], default: Subcommand | None) -> Subcommand:
    if arguments and arguments[0] in COMMANDS:
        # Alone, so that a wrong option is compared with this command's options only.
        return tyro.cli(
            COMMANDS[arguments[0]],
            prog=f"foretrace {arguments[0]}",
            args=arguments[1:],
            config=(tyro.conf.CascadeSubcommandArgs,),
            default=tyro.MISSING_NONPROP if default is None else default,
        )
    return tyro.cli(
        Command,
        prog="foretrace",
        description="Recurrent networks that learn long-range dependencies online. `--version` "
        "prints the version.",
        args=arguments,
        config=(tyro.conf.CascadeSubcommandArgs,),
        default=tyro.MISSING_NONPROP if default is None else default,
    )


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"foretrace: warning: {message}", file=sys.stderr)


def _explain(error: Exception) -> int:
    """Print an error as one line; return the exit code."""
    if os.environ.get("FORETRACE_DEBUG", "0") not in ("", "0"):
        traceback.print_exception(error)
    text = " ".join(str(error).split())
    known = isinstance(error, ValueError | OSError | DivergenceError | CompilerError)
    if not known:
        text = f"{type(error).__name__}: {text} (unexpected; FORETRACE_DEBUG=1 shows where)"
    print(f"foretrace: error: {text}", file=sys.stderr)
    bad_input = isinstance(error, ValueError | FileNotFoundError)
    return 2 if bad_input else 1
