"""What an experiment is: typed, frozen dataclasses. `_build` makes the network and learner that they describe.

They are the options of the command line (their docstrings its help), and `config.json` of a run directory.
"""

import dataclasses
from typing import Annotated, Any, Literal

import tyro

from foretrace._network import NormPlace
from foretrace._rule import RuleName
from foretrace._runs.config_json import check_types
from foretrace.experiment._cells import LRU, CellConfig, SelectiveSSM
from foretrace.experiment._precision import MatmulPrecision
from foretrace.tasks.copy import Copy
from foretrace.tasks.images import SequentialCIFAR10, SequentialMNIST
from foretrace.tasks.imdb import IMDB
from foretrace.tasks.listops import ListOps, ReleasedListOps
from foretrace.tasks.selective_copy import SelectiveCopy

TaskConfig = Copy | SelectiveCopy | SequentialCIFAR10 | SequentialMNIST | IMDB | ListOps | ReleasedListOps


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """The network: encoder, equal blocks, decoder.

    Args:
        depth: number of blocks.
        model_size: number of features between the blocks.
        cell: the recurrent layer of every block.
        glu: whether the blocks have a gated linear unit.
        norm: where the blocks normalise.
        dropout: probability that a feature is dropped.
        readout_size: hidden units of the decoder; a linear decoder if not given.
        cumulative_mean: decode the mean of the features so far, differentiated as if it were the present features;
            whole sequences only.
    """

    depth: int = 4
    model_size: int = 128
    cell: CellConfig = LRU()
    glu: bool = True
    norm: NormPlace = "pre"
    dropout: float = 0.0
    readout_size: int | None = None
    cumulative_mean: bool = False

    def __post_init__(self) -> None:
        check_types(self)


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """AdamW with linear warm-up and cosine decay to zero at the last step.

    Args:
        learning_rate: the largest rate.
        warmup_steps: steps over which the rate rises to it.
        recurrent_factor: rate of the recurrence (LRU: nu_log, theta_log, gamma_log) relative to the rest.
        weight_decay: decay of everything but the recurrence.
        clip: largest global norm of a gradient; no clipping if None.
    """

    learning_rate: float = 4e-3
    warmup_steps: int = 0
    recurrent_factor: float = 1.0
    weight_decay: float = 0.0
    clip: float | None = 1.0

    def __post_init__(self) -> None:
        check_types(self)


@dataclasses.dataclass(frozen=True)
class Config:
    """One training run.

    Args:
        task: what is learned.
        network: what learns.
        optimizer: how its parameters change.
        rule: what is differentiated through time.
        credit_depth: through the memory of how many recurrences above a parameter its errors travel as well, for the
            rules online, rtrl and hybrid; 0 is the paper's.
        credit_groups: give it to so many groups of parameters alone, counted from the input: 1 is the encoder and the
            norm before the first recurrence; the others learn by the rule itself. All by default.
        credit_columns: of the credit in depth, carry only that of so many columns of each matrix, drawn for every
            sequence and right on average; all by default. For runs in chunks: whole sequences carry nothing.
        credit_modules: of the modules of each recurrence, only so many carry it, drawn likewise; in chunks, too, with
            fewer operations.
        steps: number of batches, one update for each.
        batch_size: sequences for each update.
        chunk: run sequences in chunks of this length, one update for each sequence all the same; whole sequences if
            None. For the rules without `hybrid`, `bptt` and `uoro` both give the same gradient.
        segment: of long whole sequences, keep the insides of so many steps at a time: the same gradient in less memory,
            for a forward pass more.
        matmul_precision: of matrix products, on a device that has others than float32, as CPUs have not; states and
            sensitivities are float32 in any case. As JAX does on the device if None: tensorfloat32 on NVIDIA's GPUs.
        seed: of the initialisation, the data and dropout.
        log_every: steps between lines of metrics, which are means over these steps.
        evaluate_every: steps between evaluations on validation sequences.
        align_every: steps between measurements of the gradient's alignment with backpropagation through time; never
            if None.
        checkpoint_every: steps between checkpoints.
        validation_sequences: sequences of an evaluation during training.
        final_sequences: sequences of the evaluation at the end.

    Raises:
        ValueError: a value of another type, or a number out of range; `build` checks what depends on the task.
    """

    task: Annotated[TaskConfig, tyro.conf.AvoidSubcommands] = Copy()
    network: NetworkConfig = NetworkConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    rule: RuleName = "online"
    credit_depth: int = 0
    credit_groups: int = 0
    credit_columns: int = 0
    credit_modules: int = 0
    steps: int = 4000
    batch_size: int = 20
    chunk: int | None = None
    segment: int | None = None
    matmul_precision: MatmulPrecision | None = None
    seed: int = 0
    log_every: int = 50
    evaluate_every: int = 500
    align_every: int | None = 500
    checkpoint_every: int = 500
    validation_sequences: int = 100
    final_sequences: int = 1000

    def __post_init__(self) -> None:
        check_types(self)
        counts = ("steps", "batch_size", "chunk", "segment", "validation_sequences", "final_sequences")
        intervals = ("log_every", "evaluate_every", "align_every", "checkpoint_every")
        for name in (*counts, *intervals):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        parts = ("credit_groups", "credit_columns", "credit_modules")
        for name in ("credit_depth", *parts):
            if (value := getattr(self, name)) < 0:
                raise ValueError(f"{name}={value} must be at least 0")
        for name in parts:
            if (value := getattr(self, name)) and not self.credit_depth:
                raise ValueError(f"{name}={value} needs credit_depth of at least 1: it is a part of what that carries")
        if not 0 <= self.seed < 2**31:
            raise ValueError(f"seed={self.seed} must lie in [0, 2^31)")


TaskName = Literal["copy", "selective-copy", "scifar", "smnist", "psmnist", "imdb", "listops"]


_IMAGES = NetworkConfig(model_size=256, cell=LRU(128, 0.9, 0.999), dropout=0.1)


_STORED: dict[str, Any] = {"batch_size": 32, "steps": 10_000, "align_every": None, "validation_sequences": 1000}


_STORED |= {"optimizer": OptimizerConfig(4e-3, 1000, 0.5, 0.05), "final_sequences": 100_000}


TASKS: dict[TaskName, Config] = {
    "copy": Config(),
    "selective-copy": Config(task=SelectiveCopy(), network=NetworkConfig(2, 64, SelectiveSSM(8))),
    "scifar": Config(task=SequentialCIFAR10(), network=_IMAGES, **_STORED),
    "smnist": Config(task=SequentialMNIST(), network=_IMAGES, **_STORED),
    "psmnist": Config(task=SequentialMNIST(permuted=True), network=_IMAGES, **_STORED),
    "imdb": Config(task=IMDB(), network=NetworkConfig(model_size=64, dropout=0.1), **_STORED),
    "listops": Config(task=ListOps(), network=NetworkConfig(model_size=256, cell=LRU(128)), **_STORED),
}
"""The tasks on the command line, with the configuration that each begins with."""
