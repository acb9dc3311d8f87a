"""A whole run on a stream from Python: what `foretrace stream` does, without its printing."""

import os

from foretrace._runs.directory import default_path
from foretrace.stream._config import StreamConfig
from foretrace.stream._loop import StreamResult
from foretrace.stream._predictions import OnPrediction
from foretrace.stream._run import follow


def run(
    config: StreamConfig,
    run_dir: str | os.PathLike[str] | None = None,
    *,
    resume: bool = False,
    rows: int | None = None,
    tensorboard: bool = False,
    show_progress: bool = False,
    on_prediction: OnPrediction | None = None,
) -> StreamResult:
    """Learn from a stream until it ends, as `foretrace stream` does: each row is predicted, scored, then learned.

    `foretrace report`, `predict`, `export` and `check` take the run directory of either.

    Args:
        config: the stream and the model that learns; its fields are the options of the command.
        run_dir: new or empty directory; with `resume`, the directory of the run. Default: a new one
            in `runs`.
        resume: whether to continue the run in the directory.
        rows: total number of rows after which to stop, including those before the resumption.
        tensorboard: whether the metrics are also written for TensorBoard.
        show_progress: whether rows, scores and speed are shown on standard error.
        on_prediction: function that is called with the prediction of each row, such as the `append`
            of a list: a dictionary with the columns of the table that `predictions` writes, and all
            `probabilities` of a class. After a kill, the rows since the checkpoint come again.

    Raises:
        ValueError: the source cannot be read, settings do not fit it, or the directory cannot be
            used.
        CheckpointError: the checkpoint to continue from is damaged.
        DivergenceError: the network's loss or gradient was not finite for many steps in a row.
    """
    if run_dir is None:
        if resume:
            raise ValueError("resume=True needs the run to continue: name its directory as run_dir")
        run_dir = default_path("stream")
    return follow(
        config,
        run_dir,
        resume=resume,
        rows=rows,
        tensorboard=tensorboard,
        show_progress=show_progress,
        on_prediction=on_prediction,
    )
