"""The commands of `foretrace` and their options. The docstrings are the help texts.

The commands that begin runs have three fields in common: `config`, `run_dir` and `resume`.
"""

import dataclasses
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import Positional, Suppress

from foretrace._export.export import Format as ExportFormat
from foretrace._options.network import NetworkConfig
from foretrace._options.rule import RuleText
from foretrace.experiment._config import Config, TaskConfig
from foretrace.paper._reproduce import Reproduction
from foretrace.rl._config import RLConfig
from foretrace.stream.read.lines import Encoding
from foretrace.stream.read.source import BadRows, Format
from foretrace.stream.runs.config import StreamConfig, check_lines_of
from foretrace.sweep._config import Sweep as SweepConfig
from foretrace.tasks.copy import Copy


@dataclasses.dataclass(frozen=True)
class Train:
    """Train a network on a task; by default the paper's network on the copy task, in three minutes.

    Begin with the task: copy, selective-copy, scifar, smnist, psmnist, imdb, listops, or own for
    sequences of your own, for which --data FILE is enough.

    Args:
        config: configuration of the run.
        run_dir: folder for the records of the run. Default: runs/<task>-<time>.
        resume: whether the run exists already.
        devices: number of devices that share each batch. Default: the largest number that divides
            it.
        cluster: connect to the other processes that Slurm or Open MPI has started, which share
            --run-dir.
    """

    config: Annotated[Config, tyro.conf.arg(name="")] = Config()
    run_dir: Path | None = None
    resume: Suppress[bool] = False
    devices: int | None = None
    cluster: bool = False

    def __post_init__(self) -> None:
        if self.cluster and self.run_dir is None:
            raise ValueError(
                "the processes of a cluster share a run directory: name it with --run-dir PATH"
            )


@dataclasses.dataclass(frozen=True)
class Sweep:
    """Run `foretrace train`, `rl` or `stream` many times with other options, and compare the runs.

    Begin with the command whose runs are compared: `foretrace sweep rl t-maze`, `foretrace sweep
    stream FILE`. Each of its options, such as --optimizer.learning-rate, can also be given here; it
    then holds for all trials. With several seeds, such as --grid seed=0,1,2, the table has the mean
    over them. Each trial is a run directory that `foretrace report` reads. A process that resumes a
    sweep joins it, also from another machine with the same folder. If a process is killed, another
    process continues its trial from the checkpoint. Train and rl may be left out before a task.

    Args:
        config: configuration of the trials, and the searched options.
        run_dir: folder for the trials and their study. Default: runs/sweep-<time>.
        resume: whether the sweep exists already.
        workers: number of processes on this machine, each with one trial at a time.
    """

    config: Annotated[SweepConfig, tyro.conf.arg(name="")] = SweepConfig()
    run_dir: Path | None = None
    resume: Suppress[bool] = False
    workers: int = 1


@dataclasses.dataclass(frozen=True)
class RL:
    """Let an agent with memory learn from one stream, without replay; a few minutes by default.

    The agent learns at every step of its environment. The rule propagates errors to earlier inputs,
    and traces propagate them to earlier predictions. Compare rules, seeds and other options with
    `foretrace sweep rl`. Begin with the environment: memory-chain, t-maze, trace-conditioning,
    repeat-first, repeat-previous, gymnax or gymnasium.

    Args:
        config: configuration of the run.
        run_dir: folder for the records of the run. Default: runs/<task>-<time>.
        resume: whether the run exists already.
    """

    config: Annotated[RLConfig, tyro.conf.arg(name="")] = RLConfig()
    run_dir: Path | None = None
    resume: Suppress[bool] = False


@dataclasses.dataclass(frozen=True)
class Stream:
    """Learn from a stream row by row, and score every prediction before its label is known.

    Columns, scaling and classes are taken from the first rows and grow with the stream. Scores are
    compared with simple baselines: the last value, the most frequent class, the mean. A run is
    saved on a schedule, on Ctrl-C and on SIGTERM. `foretrace resume` continues it: in a file at the
    next row, in a pipe with the next row that arrives.

    Args:
        config: configuration of the stream and of its model.
        run_dir: folder for the records of the run. Default: runs/stream-<time>.
        resume: whether the run exists already.
        rows: number of rows after which to stop. Default: none, the stream decides.
        tensorboard: also write the metrics for TensorBoard into the run directory.
        forecast: print the --horizon values after the last row, with intervals, as CSV. The report
            is then printed on standard error.
        kafka_config: file with properties of the Kafka clients, NAME=VALUE in each line, such as
            sasl.password.
        metrics_port: port of this machine, or HOST:PORT, at which the numbers of a topic's
            partitions are served for Prometheus. Default: none.
    """

    config: Annotated[StreamConfig, tyro.conf.arg(name="")]
    run_dir: Path | None = None
    resume: Suppress[bool] = False
    rows: int | None = None
    tensorboard: bool = False
    forecast: bool = False
    kafka_config: Path | None = None
    metrics_port: str | None = None

    def __post_init__(self) -> None:
        with_topic = {"--kafka-config": self.kafka_config, "--metrics-port": self.metrics_port}
        without = {"--rows": self.rows, "--tensorboard": self.tensorboard or None}
        without["--forecast"] = self.forecast or None
        is_topic = self.config.topic is not None
        for name, value in (without if is_topic else with_topic).items():
            if value is not None:
                other = "a topic of Kafka" if is_topic else f"source={self.config.source!r}"
                raise ValueError(f"{name} is not for {other}; leave it out")
        if is_topic and self.run_dir is None:
            raise ValueError(
                "the processes of a group share a run directory: name it with --run-dir PATH"
            )
        if self.forecast and not self.config.horizon:
            raise ValueError("--forecast prints the next values: name their number by --horizon")


WAITING = 10_000
"""Default of the maximum number of rows that wait for their labels in a service."""


@dataclasses.dataclass(frozen=True)
class ServeConfig(StreamConfig):
    """A stream without a source, because a service writes rows and labels into its own journal."""

    source: Suppress[str] = "events.jsonl"
    journal: Suppress[str | None] = None
    format: Suppress[Format] = "jsonl"
    id: str | None = "id"
    waiting: int = WAITING

    def __post_init__(self) -> None:
        if self.horizon and self.waiting == WAITING:  # labels arrive with their rows
            object.__setattr__(self, "waiting", 0)
        super().__post_init__()


@dataclasses.dataclass(frozen=True)
class Serve:
    """Serve a run by HTTP: rows now, labels later by id; an answer means on disk.

    The first call begins the run: --like FILE has the columns, and --target names the column to
    predict. Later calls need only the run. `GET /` is a page, and `GET /openapi.json` describes the
    routes. If the environment variable FORETRACE_TOKEN is set, clients must send its value.

    Args:
        run: run directory, with the journal of all rows and labels, events.jsonl.
        config: configuration of a new run.
        host: address at which to listen; 0.0.0.0 for all networks.
        port: port at which to listen; 0 for a free port, which is printed.
        checkpoints: number of checkpoints that are kept, for --back-to.
        freeze: only predict, and learn nothing.
        back_to: row of an older checkpoint from which to continue. Later events are removed from
            the journal.
    """

    run: Positional[Path]
    config: Annotated[ServeConfig, tyro.conf.arg(name="")] = ServeConfig()
    host: str = "127.0.0.1"
    port: int = 8080
    checkpoints: int = 1
    freeze: bool = False
    back_to: int | None = None

    def __post_init__(self) -> None:
        if self.checkpoints < 1:
            raise ValueError(f"checkpoints={self.checkpoints} must be at least 1")


@dataclasses.dataclass(frozen=True)
class Predict:
    """Predict more rows with what `foretrace stream` has learned, without learning.

    The model continues from its checkpoint and remembers the rows that it reads. If the rows
    contain the target, the target of a row is an input of the next row, as in the stream.

    Args:
        run_dir: run directory of `foretrace stream`.
        source: file, or - for standard input.
        format: format of the source. auto determines it by the name.
        delimiter: character between the fields of a CSV file. Default: the run's.
        encoding: encoding of the text. Default: the run's.
        bad_rows: action for a row that cannot be read: predictions stop, or the row is skipped and
            counted. Default: as in the run.
        rows: number of rows after which to stop. Default: all; 1,000 for the importance.
        importance: instead of predictions, write how much the predictions change when the values of
            each column are shuffled.
        out: file NAME.csv or NAME.jsonl to write, which appears when it is complete. Default: CSV
            on standard output.
    """

    run_dir: Positional[Path]
    source: Positional[str]
    format: Format = "auto"
    delimiter: str | None = None
    encoding: Encoding | None = None
    bad_rows: BadRows | None = None
    rows: int | None = None
    importance: bool = False
    out: Path | None = None

    def __post_init__(self) -> None:
        if self.out is not None:
            check_lines_of(self.out, "out")


@dataclasses.dataclass(frozen=True)
class Align:
    """Compare the gradient of every rule with backpropagation through time, by layer and parameter.

    The rules run in chunks, as on a stream, and are compared with BPTT on whole sequences. Begin
    with a task, for a new network, or with a run of `foretrace train`, for its network and
    settings.

    Args:
        data: settings of the task.
        network: network whose gradients are compared.
        rule: learning rule whose gradient is shown for each parameter.
        batch_size: number of sequences.
        chunk: number of steps in the chunks in which the rules run. On whole sequences (None),
            HYBRID and BPTT are exact. Default: 8.
        seed: seed of the initialisation and the data.
        run_dir: run with the network to use. Default: a new network.
    """

    data: Annotated[TaskConfig, tyro.conf.arg(name="task"), tyro.conf.AvoidSubcommands] = Copy()
    network: NetworkConfig = NetworkConfig()
    rule: RuleText = "online"
    batch_size: int = 20
    chunk: int | None = 8
    seed: int = 0
    run_dir: Suppress[Path | None] = None


@dataclasses.dataclass(frozen=True)
class Reproduce:
    """Run an experiment of the paper. It can be stopped at any time, and started again.

    Runs that are recorded in the folder are not repeated. `timeout 9m foretrace reproduce …` stops
    after nine minutes.

    Args:
        config: experiment, with the options of its runs.
        run_dir: folder for the records and the run directories. Default:
            results/<experiment>-<scale>.
        resume: whether the folder exists already.
    """

    config: Annotated[Reproduction, tyro.conf.arg(name="")]
    run_dir: Annotated[Path | None, tyro.conf.arg(name="out")] = None
    resume: Suppress[bool] = False


@dataclasses.dataclass(frozen=True)
class Resume:
    """Continue a run of `foretrace train`, `rl`, `stream`, `sweep` or `reproduce`.

    The run keeps its options. More --steps extend a run of train or rl, more --trials a sweep. To
    see the options that may be given, use `foretrace resume DIR --help`.

    Args:
        run_dir: directory of the run.
    """

    run_dir: Positional[Path]


@dataclasses.dataclass(frozen=True)
class Report:
    """Print a run's table and draw its curves, or make one page of the paper's records.

    Args:
        paths: run directory of a training run, an agent, a stream or a sweep, or folders of
            `foretrace reproduce`.
        out: folder for report.md and the figures of experiments. Default: the first of the paths.
    """

    paths: Positional[tuple[Path, ...]]
    out: Path | None = None


@dataclasses.dataclass(frozen=True)
class Check:
    """Check whether a run's checkpoint, configuration and record are whole and fit together.

    Args:
        run_dir: run directory of `foretrace train`, `stream`, `rl`, `sweep` or `reproduce`.
    """

    run_dir: Positional[Path]


@dataclasses.dataclass(frozen=True)
class Export:
    """Write a run's network as a graph that runs without Python, with initial state and header.

    Args:
        run_dir: run directory of `foretrace train`, `rl` or `stream`. A run of `stream` becomes a C
            program that takes raw numbers and continues to learn.
        out: file of the graph; the state (.state.safetensors) and the header (.header.json) are
            written beside it.
        format: format of the graph; onnx needs the extra `export`.
        learn: write the learning step for one stream, which learns from every row with Adam,
            instead of the inference step. Only for runs of `foretrace train`.
        learning_rate: constant learning rate of the learning step. Default: the run's.
    """

    run_dir: Positional[Path]
    out: Path
    format: ExportFormat = "stablehlo"
    learn: bool = False
    learning_rate: Annotated[float | None, tyro.conf.arg(aliases=("--lr",))] = None


_ALL = (Train, Sweep, RL, Stream, Predict, Serve, Align, Reproduce, Resume, Report, Check, Export)
COMMANDS: dict[str, type] = {kind.__name__.lower(): kind for kind in _ALL}
"""Every command, by name."""
