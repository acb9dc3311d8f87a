"""Runs and estimators at their default, the mixture: exact resume, no leak, members, report."""

import copy
import dataclasses
import json
import pickle
import re

import numpy as np
import pytest
from safetensors import safe_open
from test_stream_run import COUNT, assert_same_run, files
from tiers import fast

import foretrace.stream as stream_package
from foretrace._experts.mixture import Mixture
from foretrace._experts.shape import Shape
from foretrace._runs.loop import DivergenceError
from foretrace._runs.metrics import read_metrics
from foretrace.cli import _main as cli
from foretrace.stream import _report
from foretrace.stream import _river as stream
from foretrace.stream._config import StreamConfig
from foretrace.stream._model_config import ModelConfig
from foretrace.stream._predict import predictions
from foretrace.stream._run import follow

__all__ = ["files"]  # a fixture
pytestmark = pytest.mark.usefixtures("standard_promotion")
FEW = ("baselines", "contexts", "short", "neighbours")
OFTEN = {"log_every": 50, "checkpoint_every": 70}

RUNS = {
    "late classes in chunks": (
        "a.jsonl",
        {"target": "class", "delay": 5, "chunk": 4, "task": "classification"},
        FEW,
    ),
    "forecast": ("a.parquet", {"target": "z", "horizon": 3, "delay": 2}, FEW),
    "all experts": ("a.csv", {"target": "class"}, None),
    "with the network": ("a.csv", {"target": "z", "chunk": 2}, (*FEW, "network")),
    "late, with the network": (
        "a.jsonl",
        {"target": "class", "delay": 3, "chunk": 4},
        (*FEW, "network"),
    ),
    "members": (
        "a.csv",
        {"target": "z", "member": "color", "members": 4, "chunk": 2, "horizon": 2},
        FEW,
    ),
    "text": ("a.txt", {}, FEW),
}


@pytest.mark.parametrize(
    "name",
    fast(
        [
            "late classes in chunks",
            "members",
            "forecast",
            "all experts",
            "with the network",
            "late, with the network",
            "text",
        ]
    ),
)
def test_a_resumed_run_is_the_undisturbed_one_bit_for_bit(files, tmp_path, name):
    file, options, experts = RUNS[name]
    config = StreamConfig(str(files / file), **options, **OFTEN, model=ModelConfig(experts=experts))
    whole = follow(config, tmp_path / "whole", show_progress=False)
    assert whole.position.row == (COUNT if name != "text" else 450) and not whole.stopped
    for i, rows in enumerate((33, 100, 101, None)):
        follow(config, tmp_path / "cut", rows=rows, resume=i > 0, show_progress=False)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")
    last = read_metrics(tmp_path / "whole" / "metrics.jsonl")[-1]
    assert set(last["experts"]) == set(last["weights"]) and sum(
        last["weights"].values()
    ) == pytest.approx(1)
    assert ("network" in last["weights"]) == (experts is not None and "network" in experts)
    with safe_open(str(tmp_path / "whole" / "checkpoint.safetensors"), "numpy") as file:
        names = list(file.keys())
    assert "pasts.labels" in names  # arrays by their names, however few the program takes
    if "mae" in last:  # the scores of a baseline are computed twice: by the mixture, and beside it
        assert last["experts"]["last"] == pytest.approx(last["no_change_mae"], abs=0.02)


@pytest.mark.parametrize("experts", fast([[FEW], [("network",)]]), ids=["mixture", "network"])
def test_answers_without_learning_know_no_label_of_their_row(tmp_path, experts):
    draw = np.random.default_rng(0)
    ys = draw.normal(size=400)
    (tmp_path / "a.csv").write_text(
        "\n".join(["x,y", *(f"{i % 3},{y:.6f}" for i, y in enumerate(ys))]) + "\n"
    )
    model = ModelConfig(experts=experts[0])
    config = StreamConfig(str(tmp_path / "a.csv"), target="y", model=model)
    run = follow(config, tmp_path / "run", rows=200, show_progress=False).run
    _, found = predictions(run.path, str(tmp_path / "a.csv"))
    assert abs(np.corrcoef([row["y"] for row in found], ys)[0, 1]) < 0.3


def test_the_report_shows_each_expert(files, tmp_path):
    config = StreamConfig(
        str(files / "a.csv"), target="class", model=ModelConfig(experts=FEW), **OFTEN
    )
    follow(config, tmp_path / "run", rows=120, show_progress=False)
    grid = _report.table(tmp_path / "run")
    first = list(grid.columns[0].cells)
    assert first[0] == "this run, the mixture"
    # Of the groups in turn.
    assert sum(cell.startswith("expert ") for cell in first) == 2 + 6 + 1 + 2
    written = json.loads((tmp_path / "run" / "config.json").read_text())
    assert "neighbours" in str(written)


def test_options_of_the_network_need_one():
    with pytest.raises(
        ValueError, match="depth=2 is an option of the network, which takes no part: choose a size"
    ):
        ModelConfig(depth=2)
    with pytest.raises(ValueError, match="must name some of baselines"):
        ModelConfig(experts=("else",))
    assert ModelConfig("tiny").expert_names() == ("baselines", "network")
    assert ModelConfig(depth=2, experts=("row", "network")).expert_names() == (
        "baselines",
        "row",
        "network",
    )


@pytest.mark.full
@pytest.mark.parametrize("kind", fast([stream.Classifier, stream.Regressor, stream.Forecaster]))
def test_what_is_pickled_goes_on_exactly(kind):
    experts = [name for name in FEW if name != "contexts" or kind is stream.Classifier]
    model, draw = (
        kind(features=4, model=ModelConfig(experts=tuple(experts))),
        np.random.default_rng(0),
    )
    rows = [({"x": float(draw.normal())}, bool(draw.random() < 0.5)) for _ in range(30)]

    def learn(model, x, y):
        return model.learn_one(float(y), x) if kind is stream.Forecaster else model.learn_one(x, y)

    def answer(model, x):
        return model.forecast(3) if kind is stream.Forecaster else model.predict_one(x)

    for x, y in rows[:20]:
        learn(model, x, y)
    others = [
        pickle.loads(pickle.dumps(model)),
        copy.deepcopy(model),
        model.clone(include_attributes=True),
    ]
    for x, y in rows[20:]:
        expected = answer(model, x)
        for other in others:
            assert answer(other, x) == expected
        for other in (model, *others):
            learn(other, x, y)


@pytest.mark.full
def test_a_pickle_with_other_arrays_is_refused():
    model = stream.Regressor(features=2, model=ModelConfig(experts=("baselines",)))
    for i in range(3):
        model.learn_one({"x": 1.0 * i}, 2.0 * i)
    kept = model.__getstate__()
    again = stream.Regressor.__new__(stream.Regressor)
    again.__setstate__(kept)
    assert again.predict_one({"x": 3.0}) == model.predict_one({"x": 3.0})
    for arrays in (kept["_state"][1:], [*kept["_state"][:-1], np.zeros((7, 7))]):
        with pytest.raises(
            ValueError, match="this Regressor was pickled by a version of foretrace that kept"
        ):
            again.__setstate__(kept | {"_state": arrays})


def test_the_number_of_members_that_is_advised_fits():
    shape = Shape(3, (0,), 1, members=300_000_000)
    with pytest.raises(
        ValueError, match=r"members=300000000.* there is room for \d+ members"
    ) as error:
        Mixture(shape)
    room = int(re.search(r"room for (\d+)", str(error.value))[1])
    Mixture(dataclasses.replace(shape, members=room))
    with pytest.raises(ValueError, match="there is room for"):
        Mixture(dataclasses.replace(shape, members=room + 1))


def test_a_short_last_chunk_scores_what_was_predicted(files, tmp_path):
    options = {"target": "z", "delay": 5, "chunk": 4, "log_every": 50, "checkpoint_every": 70}
    config = StreamConfig(
        str(files / "a.csv"), **options, model=ModelConfig(experts=("baselines",))
    )
    follow(config, tmp_path / "run", rows=101, show_progress=False)
    last = read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]
    assert last["experts"]["last"] == pytest.approx(last["no_change_mae"], rel=0.005)


def test_the_fast_size_is_the_same_mixture_in_chunks():
    fast_size = ModelConfig("fast")
    left_out = set(ModelConfig().expert_names()) - set(fast_size.expert_names())
    assert left_out == {"events", "memory", "distant"}
    assert StreamConfig("a.csv", target="z", model=fast_size).chunk == 32
    assert StreamConfig("a.csv", target="z", model=fast_size, chunk=1).chunk == 1
    assert StreamConfig("a.csv", target="z", model=fast_size, member="who").chunk == 32
    assert StreamConfig("a.csv", target="z").chunk == 1


@pytest.mark.full
@pytest.mark.parametrize(
    "options", [{"target": "z"}, {"target": "z", "horizon": 2}, {"target": "class"}]
)
def test_beside_a_network_the_experts_score_as_without_it(files, tmp_path, options):
    found = []
    for experts in (FEW, (*FEW, "network")):
        model = ModelConfig(experts=experts)
        config = StreamConfig(str(files / "a.csv"), **options, delay=3, chunk=4, model=model)
        found.append(stream_package.run(config, tmp_path / str(len(experts)), rows=300).experts)
    without, beside = found
    # Two programs, which round differently.
    assert without == pytest.approx({name: beside[name] for name in without}, rel=1e-9)
    assert {name for name in beside if name not in without} >= {"network"}


@pytest.mark.program
def test_a_run_from_python_is_that_of_the_command(files, tmp_path, monkeypatch):
    model = ModelConfig(experts=FEW)
    config = StreamConfig(str(files / "a.csv"), target="z", model=model, **OFTEN)
    with pytest.raises(
        ValueError, match="resume=True needs the run to continue: name its directory as run_dir"
    ):
        stream_package.run(config, resume=True)
    result = stream_package.run(config, tmp_path / "python", rows=200)
    words = [
        "--target",
        "z",
        "--experts",
        *FEW,
        "--log-every",
        "50",
        "--checkpoint-every",
        "70",
        "--rows",
        "200",
    ]
    monkeypatch.chdir(tmp_path)
    assert cli.main(["stream", config.source, *words, "--run-dir", "command"]) == 0
    assert_same_run(tmp_path / "python", tmp_path / "command")
    last = read_metrics(result.run_dir / "metrics.jsonl")[-1]
    assert result.rows == 200 and not result.stopped
    assert result.experts == last["experts"] and result.weights == last["weights"]
    assert result.scores["mae"] == last["mae"] and 0.7 < result.scores["coverage"] <= 1
    assert (tmp_path / "command" / "curves.png").stat().st_size > 10_000


@pytest.mark.full
def test_predictions_come_with_intervals_known_before_their_labels(files, tmp_path):
    config = StreamConfig(
        str(files / "a.csv"), target="z", horizon=2, coverage=0.8, model=ModelConfig(experts=FEW)
    )
    result = stream_package.run(config, tmp_path / "run", rows=300)
    names, found = predictions(result.run_dir, str(files / "a.csv"), rows=100)
    rows = [list(row.values()) for row in found]
    assert names == ["row", "z+1", "z+2", "z+1_low", "z+1_high", "z+2_low", "z+2_high"]
    assert all(row[3] < row[1] < row[4] and row[5] < row[2] < row[6] for row in rows)
    zs = [float(line.split(",")[-1]) for line in (files / "a.csv").read_text().splitlines()[1:]]
    inside = [low <= zs[number] <= high for number, _, _, low, high, _, _ in rows]
    assert 0.65 < np.mean(inside) < 0.95 and 0.7 < result.scores["coverage"] < 0.9


@pytest.mark.full
def test_a_missing_label_teaches_intervals_nothing(files, tmp_path):
    text = (files / "a.csv").read_text().splitlines()
    gaps = [line if i % 3 else line.rsplit(",", 1)[0] + "," for i, line in enumerate(text)]
    gaps[0] = text[0]
    (tmp_path / "gaps.csv").write_text("\n".join(gaps) + "\n")
    config = StreamConfig(
        str(tmp_path / "gaps.csv"), target="z", delay=4, model=ModelConfig(experts=("baselines",))
    )
    scores = stream_package.run(config, tmp_path / "run").scores
    assert 0.8 < scores["coverage"] < 0.98 and np.isfinite(scores["width"])


def test_scores_of_a_line_lose_nothing_to_larger_ones_before(tmp_path):
    draw = np.random.default_rng(0)
    ys = 1e9 + draw.normal(size=300)
    (tmp_path / "a.csv").write_text("y\n" + "".join(f"{y!r}\n" for y in ys.tolist()))
    model = ModelConfig(experts=("baselines",))
    config = StreamConfig(str(tmp_path / "a.csv"), target="y", log_every=100, model=model)
    follow(config, tmp_path / "run", show_progress=False)
    first, *others = read_metrics(tmp_path / "run" / "metrics.jsonl")[:3]
    assert first["no_change_mae"] > 1e6  # nothing is known before the first number
    for at, line in zip((100, 200), others, strict=True):
        steps = np.abs(np.diff(ys))[at - 1 : at + 99]
        assert line["no_change_mae"] == pytest.approx(steps.mean(), rel=1e-9)
        assert line["no_change_rmse"] == pytest.approx(np.sqrt((steps**2).mean()), rel=1e-9)


@pytest.mark.program
def test_a_network_that_diverged_is_seen_where_the_last_rows_have_no_label(tmp_path):
    draw = np.random.default_rng(0)
    rows = [
        f"{x:.3f},{'' if i % 100 > 79 else f'{2 * x:.3f}'}"
        for i, x in enumerate(draw.normal(size=300))
    ]
    (tmp_path / "a.csv").write_text("\n".join(["x,y", *rows]) + "\n")
    model = ModelConfig("tiny", learning_rate=1e30, clip=1e30)
    config = StreamConfig(str(tmp_path / "a.csv"), target="y", log_every=100, model=model)
    with pytest.raises(DivergenceError, match="steps in a row, up to row 100; try a smaller"):
        follow(config, tmp_path / "run", show_progress=False)
