"""A whole run on a stream from Python, like `foretrace stream`, with warnings in the log alone."""

import dataclasses
import difflib
import os
from typing import TYPE_CHECKING, Any

from foretrace._runs.directory import default_path
from foretrace.stream.read.frame import FRAME
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.predictions import OnPrediction
from foretrace.stream.runs.run import StreamResult, follow

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from foretrace.stream.experts.expert import AbstractExpert


def run(
    source: "StreamConfig | str | os.PathLike[str] | pd.DataFrame",
    run_dir: str | os.PathLike[str] | None = None,
    *,
    resume: bool = False,
    rows: int | None = None,
    tensorboard: bool = False,
    show_progress: bool = False,
    on_prediction: OnPrediction | None = None,
    experts: "Mapping[str, type[AbstractExpert]] | None" = None,
    **options: Any,
) -> StreamResult:
    """Learn from a stream to its end, like `foretrace stream`: predict, score, then learn.

    The run directory can be given to `foretrace report`, `predict`, `export` and `check`.

    Args:
        source: configuration of the stream; or the path of a file or a pandas frame, with fields of
            the configuration as `options`. The index of a frame is not read.
        run_dir: new or empty directory; with `resume`, the directory of the run. Default: a new
            directory in `runs`.
        resume: whether to continue the run in the directory.
        rows: total number of rows after which to stop, including rows before the resumption.
        tensorboard: whether the metrics are also written for TensorBoard.
        show_progress: whether to show rows, scores and speed on standard error.
        on_prediction: function that is called with the prediction of each row, such as the `append`
            of a list. The prediction is a dictionary with the columns of the table that
            `predictions` writes and, for a class, all `probabilities`. After a kill, the function
            is called again for the rows since the last checkpoint.
        experts: your own experts, by name, in addition to the experts of the model. Give the same
            experts again with `resume`.
        **options: fields of `StreamConfig`, such as `target`, for a path or a frame.

    Raises:
        TypeError: the source has another type, or options are given together with a configuration.
        ValueError: the source cannot be read, settings do not fit it, or the directory cannot be
            used.
        CheckpointError: the checkpoint is damaged.
        DivergenceError: loss or gradient of the network was NaN or infinite in many consecutive
            steps.
    """
    if run_dir is None:
        if resume:
            raise ValueError("resume=True needs the run to continue: name its directory as run_dir")
        run_dir = default_path("stream")
    is_frame = hasattr(source, "itertuples") and hasattr(source, "columns")
    if not isinstance(source, StreamConfig):
        config = _config(FRAME if is_frame else source, options)
    elif options:
        raise TypeError(
            f"{', '.join(options)}: options beside a configuration; give them to StreamConfig"
        )
    else:
        config = source
    return follow(
        config,
        run_dir,
        resume=resume,
        rows=rows,
        tensorboard=tensorboard,
        show_progress=show_progress,
        on_prediction=on_prediction,
        experts=experts,
        frame=source if is_frame else None,
    )


def _config(source: Any, options: dict[str, Any]) -> StreamConfig:
    known = [field.name for field in dataclasses.fields(StreamConfig)]
    for name in options:
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {close[0]}?" if close else f", only {', '.join(known)}"
            raise TypeError(f"{name}: there is no such option of a stream{hint}")
    if not isinstance(source, str | os.PathLike):
        raise TypeError(
            f"a run learns from a StreamConfig, the path of a file or a frame of pandas, not from "
            f"a {type(source).__name__}; a series becomes a frame by series.to_frame(), an array "
            "by pd.DataFrame(array, columns=…)"
        )
    return StreamConfig(os.fspath(source), **options)
