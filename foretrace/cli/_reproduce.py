"""The commands `foretrace reproduce` and `foretrace report`."""

from pathlib import Path

from foretrace.cli._kinds import again, report, stopped
from foretrace.cli._options import Report, Reproduce
from foretrace.paper import _reproduce as reproduce
from foretrace.paper._page import print_report
from foretrace.paper._records import RECORDS_FILE


def _reproduce(command: Reproduce) -> int:
    config = command.config
    out = command.run_dir or Path("results") / f"{config.experiment}-{config.scale}"
    if left := reproduce.run(config, out):
        return stopped(f"before {left[0].title}", again(out))
    return report(out)


def _report(command: Report) -> int:
    if not command.paths:
        raise ValueError("report needs the directory of a run, or folders of `foretrace reproduce`")
    if (command.paths[0] / RECORDS_FILE).exists():
        print_report(command.paths, command.out or command.paths[0])
        return 0
    if command.out is not None:
        raise ValueError(
            f"--out is for folders of `foretrace reproduce`; {command.paths[0]} holds no records "
            "of one"
        )
    return max(map(report, command.paths))
