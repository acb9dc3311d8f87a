"""The picture of the README: memory against the length of a sequence, and the accuracy of a stream while it learns.

    python -m benchmarks.streams.first_picture

Memory is that of `benchmarks/engine/bench.json`, as XLA states it for the compiled step (`foretrace bench
--parts memory`).
The stream is `foretrace stream examples/sensors.csv.gz --target reject` with the defaults, run here.
"""

import json

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from benchmarks import ledger
from benchmarks.streams.followed import follow

WAYS = {
    "BPTT, whole sequences": "backpropagation through time",
    "BPTT, chunks of 64": "backpropagation through 64 steps (a window)",
    "online, chunks of 64": "online rule, 64 steps at a time",
    "online, row by row": "online rule, one step at a time",
}
COLOURS = {name: colour for name, colour in zip(WAYS, ("tab:gray", "tab:brown", "tab:blue", "tab:cyan"), strict=True)}


def memory(axes):
    """Draw the memory of a training step against the length of the sequence."""
    found = json.loads((ledger.ROOT / "benchmarks/engine/bench.json").read_text())["parts"]["memory"]
    rows = {row["way"]: row for row in found}
    for way, label in WAYS.items():
        sizes = {int(key[2:-4]): value for key, value in rows[way].items() if key.startswith("T=")}
        axes.loglog(list(sizes), list(sizes.values()), "o-", color=COLOURS[way], label=label, base=2)
    axes.set_yscale("log", base=10)
    axes.set(title="memory of a training step, MiB", xlabel="steps of the sequence")
    axes.set_ylim(1, 1e5)
    axes.legend(loc="upper left", fontsize="small")


def stream(axes):
    """Draw the accuracy of each 100 rows of a stream, beside what repeats the last label."""
    lines = follow({}, source=str(ledger.ROOT / "examples/sensors.csv.gz"), target="reject", log_every=100).lines
    found = [line for line in lines if line["kind"] == "stream"]
    rows = [line["step"] for line in found]
    axes.plot(rows, [line["accuracy"] for line in found], color="tab:blue", label="foretrace stream, defaults")
    axes.plot(rows, [line["no_change_accuracy"] for line in found], color="tab:gray", label="the last label again")
    axes.set(title="accuracy of 100 rows, each predicted before it is learned", xlabel="row", ylim=(0.4, 1.02))
    axes.legend(loc="center right", fontsize="small")


def main():
    """Draw both."""
    page = Figure(figsize=(10, 3.4), layout="constrained")
    for axes, draw in zip(page.subplots(1, 2), (memory, stream), strict=True):
        draw(axes)
        axes.grid(alpha=0.3)
    FigureCanvasAgg(page)
    page.savefig(ledger.ROOT / "docs" / "first_picture.png", dpi=110)


if __name__ == "__main__":
    main()
