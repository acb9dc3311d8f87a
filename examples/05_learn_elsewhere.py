"""Write a learning step as an ONNX file that then learns from a CSV without JAX.

python 05_learn_elsewhere.py write model.onnx
python 05_learn_elsewhere.py learn model.onnx sensors.csv.gz
"""

import argparse
import csv
import gzip
from pathlib import Path

import numpy as np


def write(graph: Path) -> None:
    import jax
    import optax

    import foretrace as ft

    network = ft.Network(
        2, 2, model_size=32, depth=2, cell=ft.LRU.factory(state_size=32), key=jax.random.key(0)
    )
    learner = ft.Learner(
        network,
        rule=ft.ONLINE,
        optimizer=optax.adam(1e-3),
        loss=ft.losses.softmax_cross_entropy,
        warn=False,
    )
    for path in ft.export(learner, graph, "onnx", learn=True):
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")


def rows(source: Path):
    """Yield weight and temperature, scaled by eye, and whether the gate rejected a part."""
    with gzip.open(source, "rt", newline="") as lines:
        for row in csv.DictReader(lines):
            numbers = [(float(row["weight"]) - 500) / 20, (float(row["temperature"]) - 21) / 2]
            yield np.array(numbers, np.float32), np.array(row["reject"] == "yes", np.int32)


def learn(graph: Path, source: Path) -> None:
    import onnxruntime
    from safetensors.numpy import load_file

    session = onnxruntime.InferenceSession(str(graph))
    state = load_file(graph.with_suffix(".state.safetensors"))
    names, right = [output.name for output in session.get_outputs()], []
    for number, (x, y) in enumerate(rows(source), 1):
        out = dict(zip(names, session.run(None, {"x": x, "y": y, **state}), strict=True))
        state = {name: out[f"next.{name}"] for name in state}
        right.append(np.argmax(out["outputs"]) == y)  # the answer from before the update
        if number % 1000 == 0:
            print(f"row {number}: accuracy of the last 1000 rows {np.mean(right[-1000:]):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("write", "learn"):
        commands.add_parser(name).add_argument("graph", type=Path)
    commands.choices["learn"].add_argument("source", type=Path)
    options = parser.parse_args()
    if options.command == "write":
        write(options.graph)
    else:
        learn(options.graph, options.source)


if __name__ == "__main__":
    main()
