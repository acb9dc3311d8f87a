"""The report of the paper's experiments: Markdown with figures beside it."""

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
        RunError: a folder holds no records.
        MetricsError: a file is damaged.
    """
    records = []
    for folder in folders:
        found = read_records(folder)
        if not found:
            raise RunError(f"{folder} holds no records of finished runs")
        records += found
    # The same run may have been recorded on two machines; the first counts.
    return list({identity_of(record): record for record in reversed(records)}.values())[::-1]


def write_report(
    records: Sequence[dict[str, Any]], out: str | os.PathLike[str], *, head: str = ""
) -> list[Path]:
    """Write a page of Markdown, and a figure for each experiment; return them, the page first.

    Args:
        records: records of finished runs.
        out: folder for `report.md` and the figures, made if it is not there; or a file `NAME.md`,
            whose figures go into the folder NAME beside it.
        head: Markdown that the page begins with.

    Raises:
        OSError: the folder cannot be written.
    """
    out = Path(out)
    text_file, folder = (
        (out, out.with_suffix("")) if out.suffix == ".md" else (out / "report.md", out)
    )
    folder.mkdir(parents=True, exist_ok=True)
    images: dict[str, str] = {}
    for results in collect(records):
        name = f"{results.experiment.name}-{results.experiment.scale}.png"
        (folder / name).write_bytes(png(results))
        images[name] = results.experiment.title
    text = head + markdown(records)
    place = "" if text_file.parent == folder else f"{folder.name}/"
    links = "\n".join(f"![{title}]({place}{name})\n" for name, title in images.items())
    text_file.write_text(f"{text}\n{links}")
    return [text_file, *(folder / name for name in images)]


def print_report(folders: Sequence[Path], out: str | os.PathLike[str], head: str = "") -> None:
    """Write the report of the records of some folders, and print it.

    Raises:
        RunError: a folder holds no records.
        MetricsError: a file is damaged.
        OSError: the folder cannot be written.
    """
    written = write_report(read_all(folders), out, head=head)
    print(written[0].read_text())
    print(f"written: {', '.join(map(str, written))}")
