"""The report of the paper's experiments: a Markdown page and its figures."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foretrace._runs.directory import RunError
from foretrace.paper._figures import png
from foretrace.paper._records import identity_of, read_records
from foretrace.paper._tables import collect, markdown


def read_all(folders: Sequence[str | os.PathLike[str]]) -> list[dict[str, Any]]:
    """Return the records of several folders.

    Raises:
        RunError: a folder has no records.
        MetricsError: a file is damaged.
    """
    records = []
    for folder in folders:
        if not (found := read_records(folder)):
            raise RunError(f"{folder} holds no records of finished runs")
        records += found
    # If the same run was recorded on two machines, the first record counts.
    return list({identity_of(record): record for record in reversed(records)}.values())[::-1]


def write_report(records: Sequence[dict[str, Any]], out: str | os.PathLike[str]) -> list[Path]:
    """Write a Markdown page and the figures of the paper; return their paths, the page first.

    Args:
        records: records of finished runs.
        out: folder for `report.md` and the figures. It is created if it is missing.

    Raises:
        OSError: the folder cannot be written.
    """
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    page, figures, links = folder / "report.md", list[Path](), ""
    for results in collect(records):
        experiment = results.experiment
        if experiment.name.startswith("figure"):
            figures.append(folder / f"{experiment.name}-{experiment.scale}.png")
            figures[-1].write_bytes(png(results))
            links += f"\n![{experiment.title}]({figures[-1].name})\n"
    page.write_text(markdown(records) + links)
    return [page, *figures]


def print_report(folders: Sequence[Path], out: str | os.PathLike[str]) -> None:
    """Write the report from the records in some folders, and print it.

    Raises:
        RunError: a folder has no records.
        MetricsError: a file is damaged.
        OSError: the folder cannot be written.
    """
    written = write_report(read_all(folders), out)
    print(written[0].read_text())
    print(f"written: {', '.join(map(str, written))}")
