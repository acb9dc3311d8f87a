"""`foretrace serve`: open the run of a service, its desk and its port, and serve it."""

import dataclasses
import os
from pathlib import Path
from typing import Any

from foretrace._runs.checkpoint import CheckpointError
from foretrace._runs.directory import Run, read_config_as
from foretrace._runs.follow import Session, follow
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.saved import KIND
from foretrace.stream.serve.service import JOURNAL, Serving, go_back, replaced

TOKEN = "FORETRACE_TOKEN"
"""Environment variable with the token that clients must send."""

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def serve(
    run_dir: str | os.PathLike[str],
    config: StreamConfig | None,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    checkpoints: int = 1,
    freeze: bool = False,
    back_to: int | None = None,
) -> Any:
    """Serve a run until Ctrl-C or SIGTERM. Requests so far are then learned, answered and saved.

    Args:
        run_dir: directory of the run. A new run is begun if there is none.
        config: configuration of the run, without a source; None for an existing run.
        host: address at which to listen.
        port: port at which to listen; 0 for a free port.
        checkpoints: number of checkpoints that are kept.
        freeze: whether rows are only predicted, and nothing is learned.
        back_to: row of an older checkpoint from which to continue.

    Raises:
        ValueError: the configuration does not fit, another process has the run, the token is empty,
            or the extra `serve` is not installed.
        OSError: the port cannot be used.
    """
    try:
        from foretrace.stream.serve.app import App, start
    except ImportError as error:
        raise ValueError(
            f"foretrace serve needs {error.name}: pip install 'foretrace[serve]'"
        ) from error
    if (token := os.environ.get(TOKEN)) == "":
        raise ValueError(f"{TOKEN} is empty, so anybody would be let in: give a word, or unset it")
    # XLA reads this when the first program is compiled. The programs are small: more threads make
    # none of them faster, and take time from the thread that answers.
    os.environ.setdefault("NPROC", "1")
    run = Run(Path(run_dir))
    resume = run.config.exists()
    if resume and config is None:
        config = read_config_as(run.path, StreamConfig)
    elif config is None:
        raise ValueError(f"{run.path} holds no run yet: give --like SAMPLE and --target COLUMN")

    class Service(Serving):
        def begun(self) -> None:
            super().begun()
            app = App(self, run.path.resolve().name, token)
            bound, end = start(app, host, port)
            self.session.stack.callback(end)
            if token is None and host not in _LOOPBACK:
                self.session.show.say(
                    f"warning: whoever reaches {host} can send rows and labels: set {TOKEN} in the "
                    "environment, or listen at 127.0.0.1"
                )
            self.session.show.say(f"serving {run.path} at http://{host}:{bound}")

    def program(session: Session) -> Serving:
        nonlocal back_to
        if back_to is not None:  # here, no other process has the run
            print(go_back(run, back_to))
            back_to = None
        return Service(session, checkpoints=checkpoints, freeze=freeze)

    try:
        return follow(KIND, config, run.path, program, resume=resume)
    except CheckpointError as error:
        if not resume or not (run.path / JOURNAL).exists():
            raise
        print(f"{error}\n{replaced(run)}")
        return follow(KIND, config, run.path, program, resume=True)


def configured(run_dir: Path, config: StreamConfig) -> StreamConfig | None:
    """Return the configuration of a service, whose source is its journal.

    Args:
        run_dir: directory of the run. If the run exists, `serve` compares the options with the
            recorded ones.
        config: options of the command. For an existing run, the recorded ones are the defaults.

    Returns:
        The configuration; None for a new run without columns.

    Raises:
        ValueError: a service cannot have an option, or the run is not one of a service.
    """
    if config.outliers == "stop":
        raise ValueError(
            "outliers='stop' would end the service, and each later start; choose --outliers clip "
            "or mask"
        )
    options = {f.name: getattr(config, f.name) for f in dataclasses.fields(StreamConfig)}
    if Run(run_dir).config.exists():
        if Path(config.source).name != JOURNAL:
            raise ValueError(
                f"{run_dir} is a run of `foretrace stream` on {config.source!r}; a service keeps "
                "its rows itself: begin a run for it with --like SAMPLE and --target COLUMN"
            )
        return StreamConfig(**options)
    if config.like is None:
        return None
    return StreamConfig(**options | {"source": str(run_dir / JOURNAL)})
