"""What `foretrace reproduce` and `foretrace report` do."""

from pathlib import Path

from foretrace.cli._kinds import again, report, stopped
from foretrace.cli._options import Report, Reproduce
from foretrace.paper import _reproduce as reproduce
from foretrace.paper._page import print_report
from foretrace.paper._records import RECORDS_FILE

TIME_IS_UP = 75
"""Exit code of an experiment whose budget of time is spent: try again later."""


def _reproduce(command: Reproduce) -> int:
    config = command.config
    out = command.run_dir or Path("results") / f"{config.experiment}-{config.scale}"
    budget = None if command.budget is None else reproduce.seconds(command.budget)
    experiment = config.planned()
    experiment.chosen(command.only)  # reports a wrong name before anything is written
    outcome = reproduce.run(experiment, out, budget=budget, only=command.only, config=config)
    if outcome.finished:
        print_report([out], out)
    if outcome.stopped is None:
        return 0
    place = f"{outcome.stopped} after {outcome.finished} of {outcome.planned} runs"
    code = stopped(place, again(out, only=command.only, budget=command.budget))
    return code if outcome.stopped == "stopped" else TIME_IS_UP


def _report(command: Report) -> int:
    if not command.paths:
        raise ValueError("report needs the directory of a run, or folders of `foretrace reproduce`")
    if (command.paths[0] / RECORDS_FILE).exists():
        head = "" if command.head is None else command.head.read_text() + "\n"
        print_report(command.paths, command.out or command.paths[0], head)
        return 0
    if command.out is not None or command.head is not None:
        raise ValueError(
            "--out and --head are for folders of `foretrace reproduce`; "
            f"{command.paths[0]} holds no records of one"
        )
    return max(map(report, command.paths))
