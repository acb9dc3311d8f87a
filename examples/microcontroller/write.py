"""Write a small learner's C files, and a CSV's rows as constants: `python write.py [CSV]`."""

import csv
import gzip
import sys
from pathlib import Path

import jax
import optax

import foretrace as ft

source = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent / "sensors.csv.gz")
cell = ft.LRU.factory(state_size=8)
network = ft.Network(2, 2, model_size=8, depth=1, cell=cell, key=jax.random.key(0))
loss = ft.losses.softmax_cross_entropy
learner = ft.Learner(network, rule=ft.ONLINE, optimizer=optax.adam(3e-3), loss=loss, warn=False)
files = ft.export(learner, "model.c", "c", learn=True)

with gzip.open(source, "rt", newline="") as lines:
    rows = [
        (
            round(10 * float(row["weight"])),
            round(10 * float(row["temperature"])),
            int(row["reject"] == "yes"),
        )
        for row in csv.DictReader(lines)
    ]
text = ",\n".join(
    f"    {{{weight}, {temperature}, {reject}}}" for weight, temperature, reject in rows
)
kind = "typedef struct { int16_t weight, temperature; uint8_t reject; } row; /* in tenths */"
Path("rows.h").write_text(
    f"#include <stdint.h>\n{kind}\nstatic const row rows[{len(rows)}] = {{\n{text}\n}};\n"
)
print(f"{files.graph.name}, {files.include.name}, rows.h: {len(rows)} rows")
