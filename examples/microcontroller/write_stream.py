"""Write a stream's run as C, and its CSV as constants: `python write_stream.py RUN CSV`."""

import csv
import gzip
import json
import sys
from pathlib import Path

from foretrace import cli

run, source = sys.argv[1:]
if code := cli.main(["export", run, "--format", "c", "--out", "stream.c"]):
    sys.exit(code)
about = json.loads(Path("stream.header.json").read_text())
if "classes" in about or about["delay"] or about["horizon"]:
    sys.exit(f"{run}: this example is for the number of the row itself")

with (gzip.open if source.endswith(".gz") else open)(source, "rt", newline="") as lines:
    table = [
        [row[name] for name in (*about["columns"], about["target"])]
        for row in csv.DictReader(lines)
    ]
text = ",\n".join("    {" + ", ".join(value or "NAN" for value in row) + "}" for row in table)
kind = f"static const float rows[{len(table)}][STREAM_INPUTS + 1]"
Path("stream_rows.h").write_text(f"#include <math.h>\n{kind} = {{\n{text}\n}};\n")
print(f"stream.c, stream.h, stream_rows.h: {len(table)} rows")
