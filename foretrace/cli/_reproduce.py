"""What `foretrace reproduce` and `foretrace report` do."""

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foretrace import paper
from foretrace._runs.signals import STOPPED
from foretrace.cli._kinds import report
from foretrace.cli._options import Report, Reproduce
from foretrace.paper import _reproduce as reproduce
from foretrace.paper._page import read_all, write_report
from foretrace.paper._records import RECORDS_FILE
from foretrace.paper._reproduce import seconds

TIME_IS_UP = 75
"""Exit code of an experiment whose budget of time is spent: try again later."""


def _reproduce(command: Reproduce, arguments: Sequence[str]) -> int:
    experiment = paper.load(command.experiment, command.scale)
    changes: dict[str, Any] = {}
    if command.seeds is not None:
        changes["seeds"] = command.seeds
    if command.search_share is not None:
        changes["search_share"] = command.search_share
    experiment = dataclasses.replace(experiment, **changes).with_options(
        command.rates, command.data_dir
    )
    out = command.out or Path("results") / f"{command.experiment}-{command.scale}"
    outcome = reproduce.run(
        experiment,
        out,
        resume=command.resume,
        budget=None if command.budget is None else seconds(command.budget),
        only=command.only,
    )
    if outcome.finished:
        _report_experiments((out,), out)
    if outcome.stopped is None:
        return 0
    print(
        f"{outcome.stopped} after {outcome.finished} of {outcome.planned} runs; the state is "
        "saved. Go on with:"
    )
    print(
        f"    foretrace {' '.join(map(shlex.quote, arguments))}"
        + ("" if command.resume else " --resume")
    )
    return STOPPED if outcome.stopped == "stopped" else TIME_IS_UP


def _report(command: Report) -> int:
    if not command.paths:
        raise ValueError("report needs the directory of a run, or folders of `foretrace reproduce`")
    if (command.paths[0] / RECORDS_FILE).exists():
        head = "" if command.head is None else command.head.read_text() + "\n"
        return _report_experiments(command.paths, command.out or command.paths[0], head)
    if len(command.paths) > 1:
        raise ValueError(
            f"{command.paths[0]} holds no records of experiments; of single runs, report one at a "
            "time"
        )
    return report(command.paths[0])


def _report_experiments(folders: Sequence[Path], out: Path, head: str = "") -> int:
    written = write_report(read_all(folders), out, head=head)
    print(written.markdown.read_text())
    print(f"written: {written.markdown}, " + ", ".join(map(str, written.figures)))
    return 0
