"""Typed, frozen dataclasses that define an experiment.

They are the options on the command line, whose help texts are the docstrings, and the content of
`config.json` in a run directory. `_build` makes the network and the learner.
"""

import dataclasses
from typing import Annotated, Any, Literal, Self

import tyro

from foretrace._options.cells import LRU, SelectiveSSM
from foretrace._options.network import NetworkConfig
from foretrace._options.rule import RuleText
from foretrace._rule import rule_text
from foretrace._runs.config_json import check_types
from foretrace.experiment._precision import MatmulPrecision
from foretrace.tasks.copy import Copy
from foretrace.tasks.images import SequentialCIFAR10, SequentialMNIST
from foretrace.tasks.imdb import IMDB
from foretrace.tasks.listops import ListOps
from foretrace.tasks.own import OwnSequences
from foretrace.tasks.selective_copy import SelectiveCopy

TaskConfig = (
    Copy | SelectiveCopy | SequentialCIFAR10 | SequentialMNIST | IMDB | ListOps | OwnSequences
)


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """AdamW with linear warm-up, then cosine decay or a constant rate.

    Args:
        learning_rate: largest learning rate.
        schedule: course of the learning rate after the warm-up. cosine: it falls to zero at the
            last step. constant: it stays the same, so that a run can be extended exactly.
        warmup_steps: number of steps over which the learning rate rises to its largest value.
        recurrent_factor: learning rate of the recurrent parameters (LRU: nu_log, theta_log,
            gamma_log), relative to the rate of the other parameters.
        weight_decay: weight decay of all parameters except the recurrent ones.
        clip: largest global norm of a gradient; None for no clipping.
    """

    learning_rate: Annotated[float, tyro.conf.arg(aliases=("--lr",))] = 4e-3
    schedule: Literal["cosine", "constant"] = "cosine"
    warmup_steps: int = 0
    recurrent_factor: float = 1.0
    weight_decay: float = 0.0
    clip: float | None = 1.0

    def __post_init__(self) -> None:
        check_types(self)

    def settings(self, steps: int | None) -> dict[str, Any]:
        """Return arguments of `foretrace.adamw` for a number of steps; None for an endless run."""
        settings = dataclasses.asdict(self)
        return settings | {"steps": None if settings.pop("schedule") == "constant" else steps}


@dataclasses.dataclass(frozen=True)
class Config:
    """One training run.

    Args:
        task: task to learn.
        network: network to train.
        optimizer: optimiser of the network's parameters.
        rule: learning rule, such as bptt, or "online(depth=2)" for credit through two higher
            recurrent layers. The options in parentheses are depth, groups, modules and by_memory.
        steps: number of batches, each of which gives one update.
        batch_size: number of sequences in a batch.
        chunk: number of steps in a chunk. The gradients of the chunks are summed, and each sequence
            gives one update. Default: whole sequences.
        segment: number of steps of a whole sequence whose intermediate values are stored at a time.
            This saves memory and costs one more forward pass. Default: all steps.
        matmul_precision: precision of matrix products on accelerators. States and sensitivities
            stay float32, and CPUs always use float32. Default: JAX's default for the device,
            tensorfloat32 on NVIDIA GPUs.
        seed: seed of the initialisation, the data and dropout.
        log_every: number of steps between lines of metrics. Each line has the means over these
            steps.
        evaluate_every: number of steps between evaluations on validation sequences.
        align_every: number of steps between measurements of the alignment with backpropagation
            through time; None for no measurements.
        checkpoint_every: number of steps between checkpoints.
        validation_sequences: number of sequences in an evaluation during training.
        final_sequences: number of sequences in the evaluation at the end.
        keep_best: whether the evaluation at the end uses the network with the best validation
            score, instead of the last network. The score is the accuracy of sequences, or the loss
            in tasks that recall steps.

    Raises:
        ValueError: a value has the wrong type, or a number is out of range. `build` checks the
            settings that depend on the task.
    """

    task: Annotated[TaskConfig, tyro.conf.AvoidSubcommands] = Copy()
    network: NetworkConfig = NetworkConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    rule: RuleText = "online"
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
    keep_best: bool = False

    def __post_init__(self) -> None:
        check_types(self)
        object.__setattr__(self, "rule", rule_text(self.rule))
        if not 0 <= self.seed < 2**31:
            raise ValueError(f"seed={self.seed} must lie in [0, 2^31)")
        for name, value in vars(self).items():  # every other whole number is a count
            if type(value) is int and name != "seed" and not 1 <= value < 2**31:
                limit = "at least 1" if value < 1 else "below 2^31"
                raise ValueError(f"{name}={value} must be {limit}")

    def unobserved(self) -> Self:
        """Return the configuration with default settings for everything that is only recorded.

        >>> Config(steps=7, log_every=3).unobserved() == Config(steps=7)
        True
        """
        intervals = [name for name in vars(self) if name.endswith("_every")]
        observed = *intervals, "validation_sequences", "keep_best"
        defaults: dict[str, Any] = {name: getattr(Config, name) for name in observed}
        return dataclasses.replace(self, **defaults)


TaskName = Literal[
    "copy", "selective-copy", "scifar", "smnist", "psmnist", "imdb", "listops", "own"
]
_IMAGES = NetworkConfig(model_size=256, cell=LRU(128, 0.9, 0.999), dropout=0.1)
_STORED: dict[str, Any] = {
    "batch_size": 32,
    "steps": 10_000,
    "align_every": None,
    "validation_sequences": 1000,
    "optimizer": OptimizerConfig(4e-3, warmup_steps=1000, recurrent_factor=0.5, weight_decay=0.05),
    "final_sequences": 100_000,
}


TASKS: dict[TaskName, Config] = {
    "copy": Config(),
    "selective-copy": Config(task=SelectiveCopy(), network=NetworkConfig(2, 64, SelectiveSSM(8))),
    "scifar": Config(task=SequentialCIFAR10(), network=_IMAGES, **_STORED),
    "smnist": Config(task=SequentialMNIST(), network=_IMAGES, **_STORED),
    "psmnist": Config(task=SequentialMNIST(permuted=True), network=_IMAGES, **_STORED),
    "imdb": Config(task=IMDB(), network=NetworkConfig(model_size=64, dropout=0.1), **_STORED),
    "listops": Config(
        task=ListOps(), network=NetworkConfig(model_size=256, cell=LRU(128)), **_STORED
    ),
    "own": Config(
        task=OwnSequences(), network=NetworkConfig(depth=2, model_size=64), final_sequences=100_000
    ),
}
"""The tasks on the command line, each with its default configuration."""


def task_name(task: TaskConfig) -> TaskName:
    """Return the name of a task on the command line.

    >>> task_name(SequentialMNIST(permuted=True))
    'psmnist'
    """
    if isinstance(task, SequentialMNIST):
        return "psmnist" if task.permuted else "smnist"
    return next(name for name, config in TASKS.items() if type(config.task) is type(task))
