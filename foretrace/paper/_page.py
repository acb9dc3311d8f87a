"""The report of the paper's experiments: Markdown with figures beside it, and one HTML page that needs nothing else."""

import base64
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from foretrace._runs.directory import RunError
from foretrace.paper._figures import png
from foretrace.paper._records import identity_of, read_records
from foretrace.paper._tables import collect, markdown

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem; color: #1b1b1b }
table { border-collapse: collapse; margin: 1rem 0 } td, th { border: 1px solid #ccc; padding: .3rem .6rem }
th { background: #f2f2f2; text-align: left } img { max-width: 100% } code { background: #f2f2f2; padding: 0 .2rem }
"""


class Report(NamedTuple):
    """The files of a report.

    Args:
        markdown: file with the tables.
        html: page with tables and figures that needs no other file.
        figures: image files, one for each experiment and scale.
    """

    markdown: Path
    html: Path
    figures: list[Path]


def read_all(folders: Sequence[str | os.PathLike]) -> list[dict[str, Any]]:
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


def write_report(records: Sequence[dict[str, Any]], out: str | os.PathLike, *, head: str = "") -> Report:
    """Write Markdown, one HTML page, and a figure for each experiment.

    Args:
        records: records of finished runs.
        out: folder for `report.md`, `report.html` and figures, created if missing; or a file `NAME.md`, whose page and
            figures go into the folder NAME beside it.
        head: Markdown at the beginning of the page. Default: none.

    Raises:
        OSError: the folder cannot be written.
    """
    out = Path(out)
    text_file, folder = (out, out.with_suffix("")) if out.suffix == ".md" else (out / "report.md", out)
    folder.mkdir(parents=True, exist_ok=True)
    images = {f"{f.experiment.name}-{f.experiment.scale}.png": (f.experiment.title, png(f)) for f in collect(records)}
    for name, (_, data) in images.items():
        (folder / name).write_bytes(data)
    text = head + markdown(records)
    place = "" if text_file.parent == folder else f"{folder.name}/"
    links = "\n".join(f"![{title}]({place}{name})\n" for name, (title, _) in images.items())
    report = Report(text_file, folder / "report.html", [folder / name for name in images])
    report.markdown.write_text(f"{text}\n{links}")
    report.html.write_text(_html(text, images))
    return report


def _html(text: str, images: dict[str, tuple[str, bytes]]) -> str:
    from markdown_it import MarkdownIt

    body = MarkdownIt("commonmark").enable("table").render(text)
    figures = "\n".join(
        f'<p><img alt="{title}" src="data:image/png;base64,{base64.b64encode(data).decode()}"></p>'
        for title, data in images.values()
    )
    title = "foretrace: the paper, reproduced"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>\n'
        f"<h1>{title}</h1>\n{body}\n{figures}\n</html>\n"
    )
