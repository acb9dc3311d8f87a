"""Write model.wasm, a learning network, for the page beside it. Needs the extra `native`."""

import subprocess
import sys
import tempfile
from pathlib import Path

import jax
import optax

import foretrace as ft

here = Path(__file__).parent
cell = ft.LRU.factory(state_size=32)
network = ft.Network(2, 2, model_size=32, depth=2, cell=cell, key=jax.random.key(0))
loss = ft.losses.softmax_cross_entropy
learner = ft.Learner(network, rule=ft.ONLINE, optimizer=optax.adam(1e-3), loss=loss, warn=False)
with tempfile.TemporaryDirectory() as folder:
    ft.export(learner, Path(folder) / "model.c", "c", learn=True)
    compiler = [
        sys.executable,
        "-m",
        "ziglang",
        "cc",
        "-target",
        "wasm32-wasi",
        "-mexec-model=reactor",
    ]
    flags = [
        "-std=c99",
        "-O3",
        "-msimd128",
        "-ffp-contract=fast",
        "-fno-math-errno",
        "-s",
        f"-I{folder}",
    ]
    files = [str(here / "page.c"), f"{folder}/model.c", "-lm", "-o", str(here / "model.wasm")]
    subprocess.run([*compiler, *flags, *files], check=True)
print(f"model.wasm: {(here / 'model.wasm').stat().st_size / 1000:.0f} kB")
