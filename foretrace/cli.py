"""The `foretrace` command: what each of `_commands` does."""

import dataclasses
import importlib.metadata
import logging
import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import tyro

from foretrace import bench, experiment, paper, report, reproduce
from foretrace._bench_report import markdown
from foretrace._checkpoint import load, read_extra
from foretrace._commands import (
    STOPPED,
    Align,
    Bench,
    Command,
    Predict,
    Report,
    Reproduce,
    Stream,
    Subcommand,
    Sweep,
    Train,
)
from foretrace._config import TASKS, RuleName, from_json
from foretrace._learner_state import UntrainedParameters
from foretrace._network import Network
from foretrace._paper_page import read_all, write_report
from foretrace._processes import LostProcessError, is_first, join, launch, launched, loss_explained, place_among
from foretrace._program import align
from foretrace._records import FILE
from foretrace._run import Run, default_path, is_run_of, read_config_as
from foretrace._stream_cli import predict, report_stream, stream
from foretrace._stream_config import StreamConfig
from foretrace._sweep_cli import report_sweep, sweep
from foretrace._sweep_config import Sweep as SweepConfig
from foretrace.experiment import Config, DivergenceError
from foretrace.reproduce import seconds

TIME_IS_UP = 75
"""Exit code of an experiment whose budget of time is spent: try again later."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code.

    0 done, 1 failed on the way, 2 bad input, 75 budget of time spent, 130 stopped by Ctrl-C or SIGTERM;
    FORETRACE_DEBUG=1 shows tracebacks.
    """
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments == ["--version"]:
        print(f"foretrace {importlib.metadata.version('foretrace')}")
        return 0
    # What takes long before anything else is shown, such as decoding images.
    logging.basicConfig(level=logging.WARNING, format="foretrace: %(message)s", stream=sys.stderr, force=True)
    logging.getLogger("foretrace").setLevel(logging.INFO)
    # Optax notes on every schedule without a warm-up that it has none.
    logging.getLogger("absl").setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            warnings.simplefilter("always", UntrainedParameters)
            return _run(_parse(arguments), arguments)
    except KeyboardInterrupt:
        print("foretrace: stopped", file=sys.stderr)
        return STOPPED
    except LostProcessError as error:
        code = _explain(error)
        sys.stderr.flush()
        os._exit(code)  # JAX's own way out waits for the process that is gone, and aborts after a minute and a half
    except Exception as error:
        return _explain(error)


def _run(command: Subcommand, arguments: list[str]) -> int:
    match command:
        case Train():
            return _train(command, arguments)
        case Sweep():
            return sweep(command)
        case Stream():
            return stream(command)
        case Predict():
            return predict(command)
        case Align():
            return _align(command)
        case Reproduce():
            return _reproduce(command)
        case Bench():
            return _bench(command)
        case Report():
            return _report(command)


def _parse(arguments: list[str]) -> Subcommand:
    """Parse twice where a task, a run or a checkpoint is named: its configuration takes the place of the defaults."""
    command = _parse_with(arguments, _default_for(arguments))
    if isinstance(command, Train | Sweep | Stream) and command.resume:
        if command.run_dir is None:
            raise ValueError("--resume needs the run to go on with: --run-dir PATH")
        recorded: Any = read_config_as(command.run_dir, type(command.config))
        return _parse_with(arguments, dataclasses.replace(command, config=recorded))
    if isinstance(command, Align) and command.checkpoint is not None:
        config = _config_in(_checkpoint_file(command.checkpoint))
        settings = {name: getattr(config, name) for name in ("network", "rule", "batch_size", "chunk", "seed")}
        return _parse_with(arguments, Align(command.task, config.task, **settings))
    return command


def _default_for(arguments: list[str]) -> Subcommand | None:
    """Return the defaults of the task that is named, if one is; anything else is left to the parser."""
    match arguments:
        case ["train", task, *_] if task in TASKS:
            return Train(task, TASKS[task])
        case ["sweep", task, *_] if task in TASKS:
            return Sweep(task, SweepConfig(TASKS[task]))
        case ["align", task, *_] if task in TASKS:
            return Align(task, TASKS[task].task, TASKS[task].network)
    return None


def _parse_with(arguments: list[str], default: Subcommand | None) -> Subcommand:
    return tyro.cli(
        Command,
        prog="foretrace",
        description="Recurrent networks that learn long-range dependencies online. `foretrace --version` says which.",
        args=arguments,
        config=(tyro.conf.CascadeSubcommandArgs,),
        default=tyro.MISSING_NONPROP if default is None else default,
    )


def _train(command: Train, arguments: list[str]) -> int:
    run_dir = default_path(command.task) if command.run_dir is None else command.run_dir
    place = launched()
    if command.processes is not None and place is None:
        named = [] if command.run_dir is not None else ["--run-dir", str(run_dir)]
        return launch(command.processes, [*arguments, *named])
    if command.hosts:
        place = place_among(command.hosts, command.port, command.process)
    if place is not None or command.cluster:
        join(place)
    with loss_explained():
        result = experiment.train(command.config, run_dir, resume=command.resume, devices=command.devices)
    if not is_first():
        return 0 if result.scores is not None else STOPPED
    if result.scores is None:
        again = f"foretrace train {command.task} --run-dir {shlex.quote(str(run_dir))} --resume"
        print(
            f"stopped after step {result.step} of {command.config.steps}; the state is saved. Go on with:\n    {again}"
        )
        return STOPPED
    return _report_run(run_dir)


def _reproduce(command: Reproduce) -> int:
    experiment = paper.load(command.experiment, command.scale, command.settings)
    changes: dict[str, Any] = {}
    if command.seeds is not None:
        changes["seeds"] = command.seeds
    if command.search_share is not None:
        changes["search_share"] = command.search_share
    experiment = dataclasses.replace(experiment, **changes).with_options(command.rates, command.data_dir)
    out = command.out or Path("results") / f"{command.experiment}-{command.scale}"
    outcome = reproduce.run(
        experiment,
        out,
        resume=command.resume,
        budget=None if command.budget is None else seconds(command.budget),
        together=command.together,
        only=command.only,
    )
    if outcome.finished:
        _report_experiments((out,), out)
    if outcome.stopped is None:
        return 0
    print(f"{outcome.stopped} after {outcome.finished} of {outcome.planned} runs; the state is saved. Go on with:")
    print(f"    foretrace {' '.join(map(shlex.quote, sys.argv[1:]))}" + ("" if command.resume else " --resume"))
    return STOPPED if outcome.stopped == "stopped" else TIME_IS_UP


def _bench(command: Bench) -> int:
    out = command.out or default_path("bench")
    options = {name: value for name, value in vars(command).items() if name != "out"}
    print(markdown(bench.run(out, **options)))
    print(f"written: {out / 'bench.md'}, {out / 'bench.png'}, {out / bench.FILE}")
    return 0


def _report(command: Report) -> int:
    if not command.paths:
        raise ValueError("report needs the directory of a run, or folders of `foretrace reproduce`")
    if (command.paths[0] / FILE).exists():
        head = "" if command.head is None else command.head.read_text() + "\n"
        return _report_experiments(command.paths, command.out or command.paths[0], head)
    if len(command.paths) > 1:
        raise ValueError(f"{command.paths[0]} holds no records of experiments; of single runs, report one at a time")
    return _report_run(command.paths[0])


def _report_experiments(folders: Sequence[Path], out: Path, head: str = "") -> int:
    written = write_report(read_all(folders), out, head=head)
    print(written.markdown.read_text())
    print(f"written: {written.markdown}, {written.html}, " + ", ".join(map(str, written.figures)))
    return 0


def _report_run(run_dir: Path) -> int:
    from rich.console import Console

    if is_run_of(run_dir, StreamConfig):
        return report_stream(run_dir)
    if is_run_of(run_dir, SweepConfig):
        return report_sweep(run_dir)
    Console().print(report.table(run_dir))
    report.figure(run_dir)
    print(report.files(run_dir, report.CONTENTS))
    return 0


def _align(command: Align) -> int:
    from rich.console import Console

    config = Config(
        task=command.data,
        network=command.network,
        rule=command.rule,
        batch_size=command.batch_size,
        chunk=command.chunk,
        seed=command.seed,
    )
    with warnings.catch_warnings():
        # What a rule leaves untrained is in the table.
        warnings.simplefilter("ignore", UntrainedParameters)
        task, learner = experiment.build(config)
    network = learner.network
    if command.checkpoint is not None:
        network = _network_in(_checkpoint_file(command.checkpoint), config)
    found = {}
    for rule in get_args(RuleName):
        if rule != "snap1":  # another name of the online rule
            print(f"aligning {rule}", file=sys.stderr)
            found[rule] = align(config, task, network, rule)
    for grid in report.alignment_tables(found, "online" if command.rule == "snap1" else command.rule):
        Console().print(grid)
    return 0


def _network_in(checkpoint: Path, asked: Config) -> Network:
    """Return the network of a checkpoint, read by the learner that wrote it."""
    config = _config_in(checkpoint)
    if config.network != asked.network or config.task != asked.task:
        raise ValueError(
            f"{checkpoint} holds a network of another size or task than the options ask for; leave them out"
        )
    return load(checkpoint, experiment.build(config).learner).network


def _config_in(checkpoint: Path) -> Config:
    config = from_json(read_extra(checkpoint).get("config"))
    if not isinstance(config, Config):
        raise ValueError(f"{checkpoint} does not say how its network is made; `foretrace train` writes one that does")
    return config


def _checkpoint_file(path: Path) -> Path:
    return Run(path).checkpoint if path.is_dir() else path


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"foretrace: warning: {message}", file=sys.stderr)


def _explain(error: Exception) -> int:
    """Print an error as one line; return the exit code."""
    if os.environ.get("FORETRACE_DEBUG", "0") not in ("", "0"):
        traceback.print_exception(error)
    text = " ".join(str(error).split())
    known = isinstance(error, ValueError | OSError | DivergenceError)
    if not known:
        text = f"{type(error).__name__}: {text} (unexpected; FORETRACE_DEBUG=1 shows where)"
    print(f"foretrace: error: {text}", file=sys.stderr)
    bad_input = isinstance(error, ValueError | FileNotFoundError)
    return 2 if bad_input else 1
