"""A thousand rows of rubbish within a stream: nothing is poisoned or forgotten."""

import numpy as np
import pytest
from safetensors.numpy import load_file
from tiers import fast

from foretrace._runs.metrics import read_metrics
from foretrace.stream._config import StreamConfig
from foretrace.stream._model_config import ModelConfig
from foretrace.stream._run import follow

pytestmark = pytest.mark.usefixtures("standard_promotion")
BURST = range(1000, 2000)
RUBBISH = ["NaN", "inf", "-inf", "1e300", "rubbish", "", "-1e29", "1e9", "1e999"]


def write(path, task, burst):
    rng = np.random.default_rng(0)
    with open(path, "w") as file:
        file.write("a,b,y\n")
        for i in range(3000):
            a, b = rng.normal(size=2)
            y = ("down", "up")[int(a + b > 0)] if task == "classification" else f"{a + b:.4f}"
            if burst and i in BURST:
                a, b = RUBBISH[i % len(RUBBISH)], RUBBISH[(i // 3) % len(RUBBISH)]
                y = "" if task == "classification" else ["inf", "NaN", "1e300", "x"][i % 4]
            file.write(f"{a},{b},{y}\n")
    return str(path)


@pytest.mark.program
@pytest.mark.parametrize("task", fast(["regression", "classification"]))
def test_a_burst_of_rubbish_poisons_nothing(tmp_path, task):
    model = ModelConfig("tiny", depth=1, model_size=8, state_size=4, learning_rate=1e-2)
    sizes = {"model": model, "chunk": 4, "log_every": 500}
    last = {}
    for burst in (False, True):
        config = StreamConfig(
            write(tmp_path / f"{burst}.csv", task, burst),
            target="y",
            task=task,
            outliers="mask",
            **sizes,
        )
        follow(config, tmp_path / str(burst), show_progress=False)
        last[burst] = [
            r
            for r in read_metrics(tmp_path / str(burst) / "metrics.jsonl")
            if r["kind"] == "stream"
        ][-1]
        for name, array in load_file(tmp_path / str(burst) / "checkpoint.safetensors").items():
            if name != "pasts.labels":  # NaN is a label that is not known
                assert np.isfinite(array).all(), name
    assert (
        last[True]["refused"] == 0
        and last[True]["scored"] == 2000
        and last[False]["scored"] == 3000
    )
    # Rows of the burst have no target, so the two saw as many labels as 2,000 and 3,000 rows have.
    if task == "classification":
        assert (
            last[False]["accuracy"] > 0.9
            and last[True]["accuracy"] > last[False]["accuracy"] - 0.04
        )
    else:
        assert last[False]["mae"] < 0.4 and last[True]["mae"] < last[False]["mae"] + 0.1
