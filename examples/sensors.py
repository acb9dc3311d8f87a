"""Make the README's `sensors.csv.gz`: a conveyor whose gate rejects parts weighed earlier.

Each row is one tick of the conveyor. A part is weighed as it comes in and reaches the gate DISTANCE
ticks later, where it is rejected if it was too heavy. The row holds the weight of the part that
comes in and whether the part at the gate is rejected, so only a learner that remembers earlier
weights can predict `reject`.
"""

import argparse
import gzip
import io
from pathlib import Path

import numpy as np

ROWS, DISTANCE, LIMIT = 5000, 6, 505.0


def text(rows: int = ROWS, seed: int = 0) -> str:
    """Return the stream as CSV: weight in grams, temperature in degrees Celsius, reject."""
    random = np.random.default_rng(seed)
    weights = 500 + 20 * random.standard_normal(rows + DISTANCE)
    temperatures = 21 + np.cumsum(0.05 * random.standard_normal(rows))  # a distractor
    lines = ["weight,temperature,reject"]
    for t in range(rows):
        reject = "yes" if weights[t] > LIMIT else "no"
        lines.append(f"{weights[t + DISTANCE]:.1f},{temperatures[t]:.1f},{reject}")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("sensors.csv.gz"))
    options = parser.parse_args()
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0, filename="") as file:
        file.write(text().encode())
    options.out.write_bytes(packed.getvalue())
    print(f"{options.out}: {ROWS:,} rows, {len(packed.getvalue()) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
