"""The commands of `foretrace` and their options; the docstrings are their help."""

import dataclasses
from pathlib import Path
from typing import Annotated, get_args

import tyro
from tyro.conf import Positional

from foretrace._distributed.processes import PORT
from foretrace._rows.source import Format
from foretrace._rule import RuleName
from foretrace.bench._run import Part
from foretrace.bench._timing import ShapeName
from foretrace.experiment._config import Config, NetworkConfig, TaskConfig, TaskName
from foretrace.experiment._precision import MatmulPrecision
from foretrace.paper._catalogue import Name
from foretrace.paper._experiment import Scale, Settings
from foretrace.stream._config import StreamConfig
from foretrace.sweep._config import Sweep as SweepConfig
from foretrace.tasks.copy import Copy


@dataclasses.dataclass(frozen=True)
class Train:
    """Train a network on a task; on the copy task by default the paper's network, online, in about two minutes.

    Args:
        task: what to learn.
        config: the run.
        run_dir: where records go; runs/<task>-<time> if not given.
        resume: go on with the run in --run-dir, with its configuration, on any number of devices and processes.
        devices: spread each batch over so many devices; by default over as many as can share it evenly.
        processes: run in so many processes on this machine.
        hosts: run in one process on each of these machines: give the same command, with the same --run-dir on a file
            system that they share, on all of them.
        process: which of --hosts this is, from 0, if its name does not say.
        port: of the first of --hosts, where the processes meet.
        cluster: run in the processes that Slurm or Open MPI started.
    """

    task: Positional[TaskName]
    config: Annotated[Config, tyro.conf.arg(name="")] = Config()
    run_dir: Path | None = None
    resume: bool = False
    devices: int | None = None
    processes: int | None = None
    hosts: tuple[str, ...] = ()
    process: int | None = None
    port: int = PORT
    cluster: bool = False

    def __post_init__(self) -> None:
        ways = {"--processes": self.processes is not None, "--hosts": bool(self.hosts), "--cluster": self.cluster}
        if sum(ways.values()) > 1:
            raise ValueError(f"{' and '.join(way for way, asked in ways.items() if asked)} exclude each other")
        if self.processes is not None and self.processes < 1:
            raise ValueError(f"processes={self.processes} must be at least 1")
        if (self.hosts or self.cluster) and self.run_dir is None:
            raise ValueError("processes on several machines share a run directory: name it with --run-dir PATH")


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Train many runs that differ in some options of `foretrace train`, and compare them on validation sequences.

    Trials are run directories that `foretrace report` reads. A worker that is lost takes nothing with it: its trial
    goes on in another from its checkpoint. With --storage, the same command on more machines joins.

    Args:
        task: what to learn.
        config: what is tried, and what all trials have in common.
        run_dir: where trials and their table go; runs/sweep-<task>-<time> if not given.
        resume: go on with the sweep in --run-dir, with its configuration, or join it; with more --trials, make it
            longer.
        workers: processes on this machine, each with one trial at a time.
        storage: address of a database for many machines, such as postgresql://host/name; a file in the folder if not
            given.
    """

    task: Positional[TaskName]
    config: Annotated[SweepConfig, tyro.conf.arg(name="")] = SweepConfig()
    run_dir: Path | None = None
    resume: bool = False
    workers: int = 1
    storage: str | None = None


@dataclasses.dataclass(frozen=True)
class Stream:
    """Learn from a stream row by row, and score every prediction before its label is known.

    Columns, scaling and classes are taken from the first rows and grow with the stream. Scores stand beside those of
    predicting no change and the most frequent class, or the mean. A run is saved on a schedule, on Ctrl-C and on
    SIGTERM; --resume goes on exactly, at the right row of a file or with the next row of a pipe.

    Args:
        config: the stream and what learns.
        run_dir: where records go; runs/stream-<time> if not given.
        resume: go on with the run in --run-dir, with its configuration.
        rows: stop after so many rows.
        tensorboard: write the metrics for TensorBoard, too, into the run directory.
    """

    config: Annotated[StreamConfig, tyro.conf.arg(name="")]
    run_dir: Path | None = None
    resume: bool = False
    rows: int | None = None
    tensorboard: bool = False


@dataclasses.dataclass(frozen=True)
class Predict:
    """Let the network of a stream answer for more rows, as CSV, without learning.

    It goes on where its checkpoint is, and remembers the rows that it sees. If they have the target, that of the last
    row is an input of the next, as in the stream.

    Args:
        run_dir: of `foretrace stream`.
        source: file, or - for standard input.
        format: of the source; by default by its name.
        rows: stop after so many rows.
        out: CSV file to write; standard output if not given.
    """

    run_dir: Positional[Path]
    source: Positional[str]
    format: Format = "auto"
    rows: int | None = None
    out: Path | None = None


@dataclasses.dataclass(frozen=True)
class Align:
    """Compare the gradient of every rule with that of backpropagation through time, by layer and by parameter.

    The network is a new one, or that of a checkpoint.

    Args:
        task: whose sequences.
        data: the settings of the task.
        network: the network.
        rule: whose gradient is shown by parameter.
        batch_size: number of sequences.
        chunk: length of the chunks that the rules run in; whole sequences if None.
        seed: of the initialisation and the data.
        checkpoint: a checkpoint of `foretrace train`, or a run directory with one: its network and settings.
    """

    task: Positional[TaskName]
    data: Annotated[TaskConfig, tyro.conf.arg(name="task"), tyro.conf.AvoidSubcommands] = Copy()
    network: NetworkConfig = NetworkConfig()
    rule: RuleName = "online"
    batch_size: int = 20
    chunk: int | None = None
    seed: int = 0
    checkpoint: Path | None = None


@dataclasses.dataclass(frozen=True)
class Reproduce:
    """Run an experiment of the paper and put its numbers beside ours; stop it at any moment and go on with --resume.

    Args:
        experiment: a table or the panels of a figure.
        scale: smoke to see that it runs, cpu for about an hour on two cores, long for sequences of the paper's
            length with smaller networks (Tables 2 and 3; days on two cores), paper for all of it.
        settings: where the paper's text and the authors' runs differ, the settings of which.
        seeds: of the reported runs; as many as the scale has if not given.
        rates: learning rates to choose from; a single one needs no search.
        search_share: length of a run that is tried for its rate, as a share of a whole run.
        only: entries whose name contains one of these texts, such as "online, LRU".
        budget: time after which to save and stop, such as 9m, 90s or 2h.
        together: most runs in one compiled program; by default one on a CPU, all of an entry elsewhere.
        data_dir: where the data sets are; what FORETRACE_DATA names if not given.
        out: folder for the records; results/<experiment>-<scale> if not given.
        resume: go on with what is there.
    """

    experiment: Positional[Name]
    scale: Scale = "cpu"
    settings: Settings = "runs"
    seeds: tuple[int, ...] | None = None
    rates: tuple[float, ...] | None = None
    search_share: float | None = None
    only: tuple[str, ...] = ()
    budget: str | None = None
    together: int | None = None
    data_dir: Path | None = None
    out: Path | None = None
    resume: bool = False


@dataclasses.dataclass(frozen=True)
class Bench:
    """Measure time and memory of every way of running beside the floor, and draw them.

    The floor is what the matrix products alone, or copying as many bytes, take on this machine in the same run. Run
    it on a machine that does nothing else; it takes about five minutes.

    Args:
        parts: what to measure.
        shapes: sizes of training steps; by default all that the device runs in minutes.
        rounds: timed rounds, of which medians are reported.
        chunks: lengths of the chunks of a stream.
        streams: numbers of streams side by side.
        lengths: lengths of sequences whose memory is asked for; nothing of these is run.
        matmul_precision: of matrix products, those of the floor as well; as JAX does on the device if None. Parts that
            start processes of their own (first, processes) do without.
        out: folder for bench.json, bench.md, bench.png; runs/bench-<time> if not given.
    """

    parts: tuple[Part, ...] = get_args(Part)
    shapes: tuple[ShapeName, ...] | None = None
    rounds: int = 15
    chunks: tuple[int, ...] = (1, 16, 64, 1024)
    streams: tuple[int, ...] = (1, 8)
    lengths: tuple[int, ...] = (1024, 4096, 16384, 65536)
    matmul_precision: MatmulPrecision | None = None
    out: Path | None = None


@dataclasses.dataclass(frozen=True)
class Report:
    """Print the table of a run and draw its curves, or put records of the paper's experiments into one page.

    Args:
        paths: the directory of a run or of a sweep; or folders of `foretrace reproduce`.
        out: folder for report.md, report.html and figures of experiments, or a file NAME.md with the rest in the folder
            NAME; the first of the paths if not given.
        head: Markdown file to begin the report with.
    """

    paths: Positional[tuple[Path, ...]]
    out: Path | None = None
    head: Path | None = None


Subcommand = Train | Sweep | Stream | Predict | Align | Reproduce | Bench | Report


Command = (
    Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Sweep, tyro.conf.subcommand("sweep")]
    | Annotated[Stream, tyro.conf.subcommand("stream")]
    | Annotated[Predict, tyro.conf.subcommand("predict")]
    | Annotated[Align, tyro.conf.subcommand("align")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
    | Annotated[Report, tyro.conf.subcommand("report")]
)
