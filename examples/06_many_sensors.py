"""Learn from thousands of sensors on several machines, with a worker of Ray for each part of them.

    pip install 'foretrace[ray]'          # and `ray start` on every machine
    python 06_many_sensors.py rows.csv --target y --member sensor --parts 8

All rows of a sensor go to one part, in their order. A part is a stream of its own: a run
directory with a checkpoint, and a file of predictions. If a worker or its machine is lost, Ray
starts the part again elsewhere. It goes on from its checkpoint, so each row counts once. The folder
must be one that all machines share.
"""

import argparse
import csv
import zlib
from contextlib import ExitStack
from pathlib import Path

import foretrace as ft


def split(source: str, member: str, parts: int, folder: Path) -> dict[Path, int]:
    """Write the rows of each part to a file; a sensor always goes to the same one.

    Returns the file of each part and the number of its sensors. Parts that no sensor goes to are
    left out.
    """
    paths = [folder / f"part-{part}.csv" for part in range(parts)]
    with ExitStack() as stack:
        rows = csv.DictReader(stack.enter_context(open(source)))
        files = [stack.enter_context(open(path, "w", newline="")) for path in paths]
        writers = [csv.DictWriter(file, rows.fieldnames) for file in files]
        for writer in writers:
            writer.writeheader()
        sensors: list[set[str]] = [set() for _ in paths]
        for row in rows:
            part = zlib.crc32(row[member].encode()) % parts
            sensors[part].add(row[member])
            writers[part].writerow(row)
    return {path: len(names) for path, names in zip(paths, sensors, strict=True) if names}


def learn(path: Path, **options) -> dict[str, float]:
    """Learn from a part, or go on where a lost worker was; return its scores."""
    run = path.with_suffix("")
    begun = (run / "config.json").exists()
    predictions = path.with_suffix(".jsonl")
    result = ft.stream.run(path, run, resume=begun, predictions=predictions, **options)
    return {"rows": result.rows, **result.scores}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("source", help="CSV file")
    for name, text in {"target": "column to predict", "member": "column of the sensor"}.items():
        parser.add_argument(f"--{name}", required=True, help=text)
    parser.add_argument("--parts", type=int, default=2, help="number of parts")
    parser.add_argument("--checkpoint-every", type=int, default=10_000, help="rows")
    parser.add_argument("--folder", type=Path, default=Path("parts"), help="shared folder")
    given = parser.parse_args()

    import ray

    given.folder.mkdir(parents=True, exist_ok=True)
    paths = split(given.source, given.member, given.parts, given.folder.absolute())
    options = {name: getattr(given, name) for name in ("target", "member", "checkpoint_every")}
    remote = ray.remote(max_retries=-1)(learn)
    waiting = [remote.remote(path, members=count, **options) for path, count in paths.items()]
    for path, scores in zip(paths, ray.get(waiting), strict=True):
        print(path.stem, scores)
