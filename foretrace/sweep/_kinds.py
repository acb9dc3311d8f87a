"""The commands whose runs a sweep compares, with the properties it needs of each."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax

from foretrace import experiment, rl
from foretrace._rows.scores import SCORES
from foretrace._runs.directory import Run
from foretrace._runs.metrics import read_metrics
from foretrace.experiment._build import build
from foretrace.experiment._config import Config
from foretrace.rl._config import RLConfig
from foretrace.rl._program import begin
from foretrace.rl._program import build as build_agent
from foretrace.rl._report import score_of
from foretrace.stream._config import StreamConfig
from foretrace.stream._plan import open_source
from foretrace.stream._run import follow

SweptConfig = Config | RLConfig | StreamConfig


class Swept(NamedTuple):
    """A command whose runs are compared.

    Args:
        name: name of the command.
        config: class of its configurations.
        scores: scores of a run; 1 where a smaller one is better, else -1.
        default: function of a configuration: the score that counts if none is named, or None.
        check: function of a configuration; it raises ValueError for one that cannot run, and
            computes nothing.
        run: function of a configuration, a directory, whether to resume, and a function that notes
            the scores of a trial. It returns whether the trial is finished.
        curve: kind of the lines of a record that have the scores.
    """

    name: str
    config: type
    scores: Mapping[str, int]
    default: Callable[[Any], str | None]
    check: Callable[[Any], Any]
    run: Callable[[Any, Path, bool, Any], bool]
    curve: str


def _check_train(config: Config) -> None:
    jax.eval_shape(lambda: build(config).learner.init(jax.random.key(config.seed)))


def _train(config: Config, path: Path, resume: bool, watch: Any) -> bool:
    metrics = Run(path).metrics
    for record in read_metrics(metrics) if resume and metrics.exists() else ():
        if record["kind"] == "validation":
            watch.note(record["step"], record)
    result = experiment.train(config, path, resume=resume, show_progress=False, watch=watch)
    return result.step == config.steps


def _check_agent(config: RLConfig) -> None:
    jax.eval_shape(lambda: begin(config.seen, build_agent(config), jax.random.key(config.seed)))


def _act(config: RLConfig, path: Path, resume: bool, watch: Any) -> bool:
    result = rl.train(config, path, resume=resume, show_progress=False)
    if result.scores is not None:
        watch.note(result.step, result.scores)
    return result.scores is not None


def _check_stream(config: StreamConfig) -> None:
    if config.source == "-":
        raise ValueError(
            "every trial reads the source from its first row: name a file, not standard input"
        )
    if config.predictions is not None:
        raise ValueError(
            f"predictions={config.predictions}: all trials would write to it; leave it out, and "
            "run the best trial again by foretrace stream"
        )
    open_source(config)


def _follow(config: StreamConfig, path: Path, resume: bool, watch: Any) -> bool:
    result = follow(config, path, resume=resume, show_progress=False)
    if not result.stopped:
        watch.note(result.rows, result.scores)
    return not result.stopped


def _of_target(config: StreamConfig) -> str | None:
    named = "classification" if config.format == "text" else config.task
    return {"classification": "accuracy", "regression": "mae"}.get(named)


TRAIN = Swept(
    name="train",
    config=Config,
    scores={"loss": 1, "accuracy": -1, "sequences": -1},
    default=lambda config: "loss",
    check=_check_train,
    run=_train,
    curve="validation",
)
RL = Swept(
    name="rl",
    config=RLConfig,
    scores={"return": -1, "reward": -1, "error": 1},
    default=score_of,
    check=_check_agent,
    run=_act,
    curve="train",
)
STREAM = Swept(
    name="stream",
    config=StreamConfig,
    scores={name: score.sign for name, score in SCORES.items() if score.sign},
    default=_of_target,
    check=_check_stream,
    run=_follow,
    curve="stream",
)


def swept(config: SweptConfig) -> Swept:
    """Return the command of a configuration."""
    return next(each for each in (TRAIN, RL, STREAM) if isinstance(config, each.config))
