"""Runs that differ in seed and learning rate, trained together in one compiled program.

A small network cannot keep an accelerator busy, so its runs are batched (`vmap`); on a CPU, where
batched small products are slow, they follow one another inside the program. On several devices the
runs are spread over them.
"""

import dataclasses
import functools
import warnings
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import Mesh, PartitionSpec

from foretrace._engine.alignment import Alignment
from foretrace._learner.optimizer import adamw
from foretrace._learner.state import LearnerState, UntrainedParameters
from foretrace._network import Network
from foretrace._types import Array, Float
from foretrace.experiment._build import TaskAndLearner, build
from foretrace.experiment._config import Config
from foretrace.experiment._program import align, evaluate, evaluation_batches, learn
from foretrace.tasks import EvaluationSplit


class SeedAndRate(NamedTuple):
    """What distinguishes the runs of a batch.

    Args:
        seed: seed of the initialisation, the data and dropout.
        rate: learning rate, instead of the configuration's.
    """

    seed: int
    rate: float


class RunBatchState(NamedTuple):
    """The state of all runs; every leaf has an axis of runs in front.

    Args:
        learner: state of the learner.
        best: network with the highest validation score so far.
        score: validation score of `best`: accuracy of sequences, or minus the loss where steps are
            recalled.
        best_step: step at which `best` was evaluated.
        sums: sums of loss, accuracy and one over the accepted steps since the last evaluation.
    """

    learner: LearnerState
    best: Network
    score: Float[Array, "R"]
    best_step: Array
    sums: Float[Array, "R 3"]


class RunBatch:
    """Runs of one configuration that are trained in one compiled program.

    Args:
        config: configuration that the runs share.
        members: seed and learning rate of each run.
        devices: devices that the runs are distributed over. Default: all local devices.

    Raises:
        ValueError: no members, a configuration that makes no network, or a negative rate.
        DataError: the task's data are missing.
    """

    def __init__(
        self,
        config: Config,
        members: tuple[SeedAndRate, ...],
        devices: tuple[jax.Device, ...] | None = None,
    ):
        if not members:
            raise ValueError("a batch of runs needs at least one run")
        for member in members:
            if not member.rate >= 0:
                raise ValueError(f"a learning rate of {member.rate} must not be negative")
        self.config, self.members = config, members
        self._seeds = np.array([member.seed for member in members], np.int32)
        self._rates = np.array([member.rate for member in members], jnp.zeros(()).dtype)
        rest = dataclasses.replace(config, seed=0)
        devices = tuple(jax.local_devices()) if devices is None else devices
        self._programs = _programs(rest, len(members), devices)

    def init(self) -> RunBatchState:
        """Return the state of all runs before their first step."""
        return self._programs.init(self._seeds, self._rates)

    def advance(self, state: RunBatchState, first: int, count: int) -> RunBatchState:
        """Learn `count` steps from step `first` on; the state that is passed in is donated."""
        return self._programs.advance(state, self._seeds, np.int32(first), np.int32(count))

    def judge(
        self, state: RunBatchState, step: int
    ) -> tuple[RunBatchState, list[dict[str, float]]]:
        """Evaluate on validation, keep the best networks, and return each run's new measurements.

        The state that is passed in is donated.
        """
        batches = np.int32(self._batches("validation", self.config.validation_sequences))
        state, rows = self._programs.judge(state, self._seeds, batches, np.int32(step))
        return state, _by_run(rows)

    def score(
        self, state: RunBatchState, split: EvaluationSplit, *, best: bool
    ) -> list[dict[str, float]]:
        """Return loss, accuracy and whole sequences of each run, by its last or best network."""
        networks = state.best if best else state.learner.network
        batches = np.int32(self._batches(split, self.config.final_sequences))
        return _by_run(self._programs.score(networks, self._seeds, batches, split=split))

    def align(self, state: RunBatchState) -> list[Alignment]:
        """Return the alignment of each run's gradient with BPTT, on validation sequences."""
        found = []
        for run, member in enumerate(self.members):
            network = jax.tree.map(lambda leaf, run=run: leaf[run], state.learner.network)
            config = dataclasses.replace(self.config, seed=member.seed)
            found.append(align(config, config.task, network, self._programs.learner.rule))
        return found

    def _batches(self, split: EvaluationSplit, sequences: int) -> int:
        return evaluation_batches(self.config, self.config.task, split, sequences)


class _Programs:
    """Compiled programs for a configuration and a number of runs."""

    def __init__(self, config: Config, runs: int, devices: tuple[jax.Device, ...]):
        self.config, self._runs, self._devices = config, runs, devices
        self.task, self.learner = _build_for_any_rate(config)
        self.init = jax.jit(self._over_runs(self._init_one))
        self.advance = jax.jit(self._over_runs(self._advance_one, shared=2), donate_argnums=0)
        self.judge = jax.jit(self._over_runs(self._judge_one, shared=2), donate_argnums=0)
        self.score = jax.jit(self._over_runs(self._score_one, shared=1), static_argnames="split")

    def _init_one(self, seed: Array, rate: Array) -> RunBatchState:
        key = jax.random.key(seed)
        network = self.config.network.drawn(self.task.input_size, self.task.output_size, key)
        state = self.learner.init(jax.random.fold_in(key, 1))
        opt_state = optax.tree.set(self.learner.optimizer.init(network), step_size=rate)
        state = state._replace(network=network, opt_state=opt_state)
        worst = jnp.full((), -jnp.inf)
        return RunBatchState(state, network, worst, jnp.zeros((), jnp.int32), jnp.zeros(3))

    def _advance_one(
        self, state: RunBatchState, seed: Array, first: Array, count: Array
    ) -> RunBatchState:
        def one(i: Array, now: tuple[LearnerState, Array]) -> tuple[LearnerState, Array]:
            learner_state, sums = now
            learner_state, row = learn(
                self.config, self.task, self.learner, learner_state, first + i, seed
            )
            loss, accuracy, _, accepted = row
            counted = jnp.where(accepted > 0, jnp.stack([loss, accuracy, jnp.ones_like(loss)]), 0)
            return learner_state, sums + counted

        learner_state, sums = lax.fori_loop(0, count, one, (state.learner, state.sums))
        return state._replace(learner=learner_state, sums=sums)

    def _judge_one(
        self, state: RunBatchState, seed: Array, batches: Array, step: Array
    ) -> tuple[RunBatchState, dict[str, Array]]:
        network = state.learner.network
        scores = evaluate(self.config, self.task, network, batches, seed=seed)
        # Only the class of a sequence counts; recalled bits saturate, their loss does not.
        score = scores.accuracy if self.task.labels == "sequence" else -scores.loss
        better = score > state.score
        keep = partial(jnp.where, better)
        loss, right, accepted = state.sums
        row = {
            "training_loss": loss / accepted,
            "training_accuracy": right / accepted,
            "accepted": accepted,
            **scores._asdict(),
        }
        after = state._replace(
            best=jax.tree.map(keep, network, state.best),
            score=jnp.where(better, score, state.score),
            best_step=jnp.where(better, step, state.best_step),
            sums=jnp.zeros_like(state.sums),
        )
        return after, row

    def _score_one(
        self, network: Network, seed: Array, batches: Array, split: EvaluationSplit
    ) -> dict[str, Array]:
        return evaluate(self.config, self.task, network, batches, split=split, seed=seed)._asdict()

    def _over_runs(self, function: Any, shared: int = 0) -> Any:
        """Apply a function of one run to all; its last `shared` positional arguments are common."""

        def local(*arguments: Any, **static: Any) -> Any:
            split = len(arguments) - shared
            own, common = arguments[:split], arguments[split:]

            def one(*own: Any) -> Any:
                return function(*own, *common, **static)

            if one_after_another(self._devices[0]):
                return lax.map(lambda own: one(*own), own)
            return jax.vmap(one)(*own)

        if len(self._devices) == 1 or self._runs % len(self._devices):
            return local
        mesh = Mesh(np.array(self._devices), ("runs",))

        def spread(*arguments: Any, **static: Any) -> Any:
            runs, same = PartitionSpec("runs"), PartitionSpec()
            specs = (runs,) * (len(arguments) - shared) + (same,) * shared
            return jax.shard_map(
                partial(local, **static), mesh=mesh, in_specs=specs, out_specs=runs, check_vma=False
            )(*arguments)

        return spread


def one_after_another(device: jax.Device) -> bool:
    """Return whether runs take turns on a device: CPUs are slower at batched small products."""
    return device.platform == "cpu"


# Runs that follow one another share their programs.
_programs = functools.lru_cache(maxsize=2)(_Programs)


def _build_for_any_rate(config: Config) -> TaskAndLearner:
    """Build with the learning rate in the optimiser's state, where the update is scaled by it."""
    options = config.optimizer.settings(config.steps) | {"learning_rate": 1.0}
    optimizer = optax.chain(adamw(**options), optax.inject_hyperparams(optax.scale)(step_size=1.0))
    with warnings.catch_warnings():
        # Experiments run rules that leave parameters untrained on purpose.
        warnings.simplefilter("ignore", UntrainedParameters)
        return build(config, optimizer)


def _by_run(rows: dict[str, Array]) -> list[dict[str, float]]:
    table = {name: np.asarray(values, np.float64) for name, values in rows.items()}
    return [
        {name: float(values[run]) for name, values in table.items()}
        for run in range(len(next(iter(table.values()))))
    ]
