"""The commands whose runs a sweep can compare, with their properties."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from equinox import filter_eval_shape as shapes

from foretrace import experiment, rl
from foretrace._runs.directory import Run
from foretrace._runs.metrics import read_metrics
from foretrace.experiment._build import build
from foretrace.experiment._config import Config
from foretrace.rl._config import RLConfig
from foretrace.rl._program import build as build_agent
from foretrace.rl._report import score_of
from foretrace.stream.read.scores import SCORES
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.plan import open_source
from foretrace.stream.runs.run import follow

SweptConfig = Config | RLConfig | StreamConfig


class Swept(NamedTuple):
    """A command whose runs a sweep compares.

    Args:
        scores: scores of a run, with 1 if a smaller score is better, else -1.
        default: function from a configuration to the score that is used if none is named, or None.
        check: function of a configuration. It raises a ValueError if the configuration cannot run,
            and computes nothing.
        run: function that begins or resumes a run.
    """

    scores: Mapping[str, int]
    default: Callable[[Any], str | None]
    check: Callable[[Any], Any]
    run: Callable[..., Any]


def scores_of(config: SweptConfig, run: Run, show_progress: bool) -> Mapping[str, Any] | None:
    """Begin or resume a run; return its scores, or None if it was stopped before its end."""
    resume = run.config.exists()
    result = KINDS[type(config)].run(config, run.path, resume=resume, show_progress=show_progress)
    if result.scores is None or getattr(result, "stopped", False):
        return None
    if isinstance(config, Config):  # options are chosen without the test sequences
        lines = [line for line in read_metrics(run.metrics) if line["kind"] == "validation"]
        return lines[-1] if lines else {}
    return result.scores


def _check_stream(config: StreamConfig) -> None:
    if config.source == "-":
        raise ValueError("source='-': every trial reads it from the first row; name a file")
    if config.predictions is not None:
        raise ValueError(f"predictions={config.predictions}: all trials would write to it")
    open_source(config)


def _of_target(config: StreamConfig) -> str | None:
    named = "classification" if config.format == "text" else config.task
    return {"classification": "accuracy", "regression": "mae"}.get(named)


_TRAIN_SCORES = {"loss": 1, "accuracy": -1, "sequences": -1}
_RL_SCORES = {"return": -1, "reward": -1, "error": 1}
_STREAM_SCORES = {name: score.sign for name, score in SCORES.items() if score.sign}
KINDS = {
    Config: Swept(_TRAIN_SCORES, lambda _: "loss", lambda c: shapes(build, c), experiment.train),
    RLConfig: Swept(_RL_SCORES, score_of, lambda c: shapes(build_agent, c), rl.train),
    StreamConfig: Swept(_STREAM_SCORES, _of_target, _check_stream, follow),
}
"""The properties of each command, by the class of its configurations."""
