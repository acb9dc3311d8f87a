"""What a run says at its end, and how its settings follow from each other."""

import dataclasses
import re

import numpy as np
import pytest
from streams import FEW, assert_same_run, quiet
from tiers import fast

from foretrace import stream
from foretrace._experts.mixture import Mixture
from foretrace._experts.shape import Shape
from foretrace._runs.metrics import read_metrics
from foretrace.cli import _main as cli
from foretrace.stream import _report
from foretrace.stream._config import StreamConfig
from foretrace.stream._model_config import ModelConfig

SOME = ("baselines", "contexts", "short", "neighbours")


def write(path, names, *columns):
    """Write columns as a file, and return its path."""
    lines = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
    path.write_text("\n".join([names, *lines]) + "\n")
    return str(path)


def test_the_report_shows_the_simple_answers_and_the_groups_of_experts(files, tmp_path):
    config = StreamConfig(str(files / "a.csv"), target="k", model=ModelConfig(experts=SOME))
    result = quiet(config, tmp_path / "run", rows=120)
    table = _report.table(tmp_path / "run")
    names = list(table.columns[0].cells)
    assert names[:3] == ["this run", "the last one known", "the most frequent class"]
    shares = dict(name.rsplit(", weight ") for name in names[3:])
    groups = {
        "simple answers",
        "labels that followed the last ones",
        "earlier rows",
        "similar rows",
    }
    assert shares.keys() == groups
    assert sum(map(float, shares.values())) == pytest.approx(1, abs=0.03)
    assert float(shares["earlier rows"]) == pytest.approx(result.weights["short"], abs=0.005)
    shown = dict(zip(names, table.columns[1].cells, strict=True))
    assert max(map(float, (result.experts["last"], result.experts["majority"]))) == pytest.approx(
        float(shown[f"simple answers, weight {shares['simple answers']}"].rstrip("%")) / 100,
        abs=1e-4,
    )


def test_the_number_of_members_that_is_advised_fits():
    shape = Shape(3, (0,), 1, members=300_000_000)
    words = r"members=300000000.* there is room for \d+ members"
    with pytest.raises(ValueError, match=words) as error:
        Mixture(shape)
    room = int(re.search(r"room for (\d+)", str(error.value))[1])
    Mixture(dataclasses.replace(shape, members=room))
    with pytest.raises(ValueError, match="there is room for"):
        Mixture(dataclasses.replace(shape, members=room + 1))


def test_experts_and_chunks_follow_from_the_model():
    fast_size = ModelConfig("fast")
    left_out = {*ModelConfig().expert_names()} - {*fast_size.expert_names()}
    assert left_out == {"events", "memory", "distant"}
    assert ModelConfig("tiny").expert_names() == ("baselines", "network")
    with_network = ModelConfig(depth=2, experts=("row", "network"))
    assert with_network.expert_names() == ("baselines", "row", "network")
    assert StreamConfig("a.csv", model=fast_size).chunk == 32
    assert StreamConfig("a.csv", model=fast_size, chunk=1).chunk == 1
    assert StreamConfig("a.csv", target="z", model=fast_size, member="who").chunk == 32
    assert StreamConfig("a.csv").chunk == 1


@pytest.mark.full
@pytest.mark.parametrize("options", fast([{"target": "y"}, {"target": "y", "horizon": 2}], 2))
def test_beside_a_network_the_experts_score_as_without_it(files, tmp_path, options):
    found = []
    for experts in (SOME, (*SOME, "network")):
        model = ModelConfig(experts=experts)
        config = StreamConfig(str(files / "a.csv"), **options, delay=3, chunk=4, model=model)
        found.append(quiet(config, tmp_path / str(len(experts)), rows=160).experts)
    without, beside = found
    # Two programs, which round differently.
    assert without == pytest.approx({name: beside[name] for name in without}, rel=1e-9)
    assert "network" in beside.keys() - without.keys()


def test_a_run_from_python_is_that_of_the_command(files, tmp_path, monkeypatch):
    config = StreamConfig(str(files / "a.csv"), target="y", model=FEW, log_every=50)
    result = stream.run(config, tmp_path / "python", rows=150)
    words = "--target y --experts baselines row --log-every 50 --rows 150 --run-dir command"
    monkeypatch.chdir(tmp_path)
    assert cli.main(["stream", config.source, *words.split()]) == 0
    assert_same_run(tmp_path / "python", tmp_path / "command")
    last = read_metrics(result.run_dir / "metrics.jsonl")[-1]
    assert result.rows == 150 and not result.stopped
    assert result.experts == last["experts"] and result.weights == last["weights"]
    assert result.scores["mae"] == last["mae"] and 0.7 < result.scores["coverage"] <= 1
    with pytest.raises(ValueError, match="resume=True needs the run to continue: name its direc"):
        stream.run(config, resume=True)


def test_scores_of_a_line_lose_nothing_to_larger_ones_before(tmp_path):
    ys = 1e9 + np.random.default_rng(0).normal(size=300)
    source = write(tmp_path / "a.csv", "y", ys.tolist())
    model = ModelConfig(experts=("baselines",))
    quiet(StreamConfig(source, "y", log_every=100, model=model), tmp_path / "run")
    first, *others = read_metrics(tmp_path / "run" / "metrics.jsonl")[:3]
    assert first["no_change_mae"] > 1e6  # nothing is known before the first number
    for at, line in zip((100, 200), others, strict=True):
        steps = np.abs(np.diff(ys))[at - 1 : at + 99]
        assert line["no_change_mae"] == pytest.approx(steps.mean(), rel=1e-9)
        assert line["no_change_rmse"] == pytest.approx(np.sqrt((steps**2).mean()), rel=1e-9)


def test_intervals_of_each_member_are_as_wide_as_its_own_errors(tmp_path, capsys):
    draw, shown = np.random.default_rng(0), []
    names, sizes = ["small", "large"] * 800, np.tile([1.0, 10.0], 800)
    sales = 100 * sizes + sizes * draw.normal(size=1600)
    source = write(tmp_path / "shops.csv", "shop,sales", names, sales)
    config = StreamConfig(source, target="sales", member="shop", members=3, model=FEW)
    run = quiet(config, tmp_path / "run", on_prediction=shown.append).run_dir
    held = np.array(
        [
            row["sales_low"] <= value <= row["sales_high"]
            for row, value in zip(shown, sales, strict=True)
        ]
    ).reshape(-1, 2)
    # One width for both would hold all of one's, and .8 of the other's.
    assert ((held[400:].mean(0) > 0.84) & (held[400:].mean(0) < 0.96)).all()
    worst, last = names[held.mean(0).argmin()], read_metrics(run / "metrics.jsonl")[-1]
    assert last["worst_member"] == worst
    assert last["worst_member_coverage"] == pytest.approx(held.mean(0).min(), abs=0.01)
    assert cli.main(["report", str(run)]) == 0
    assert f"of {worst}'s, the least of a member" in " ".join(capsys.readouterr().out.split())


def compared(tmp_path, names, *columns, **options):
    """Return the last record of a run, and what its report says below the table."""
    source = write(tmp_path / "a.csv", names, *columns)
    config = StreamConfig(source, "y", model=ModelConfig(experts=("row",)), **options)
    run = quiet(config, tmp_path / "run").run_dir
    return read_metrics(run / "metrics.jsonl")[-1], _report.table(run).caption


def test_a_coin_is_no_better_than_its_more_frequent_side(tmp_path):
    draw = np.random.default_rng(0)
    xs, heads = draw.normal(size=600), draw.uniform(size=600) < 0.7
    sides = np.where(heads, "heads", "tails")
    last, caption = compared(tmp_path, "x,y", xs, sides)
    assert last["kind"] == "result" and last["not_better_than"] == ["majority_"]
    assert caption.startswith("The accuracy, ")
    assert "is not better than the most frequent class (" in caption
    assert "the last one known" not in caption and "try more rows, other inputs, or" in caption


@pytest.mark.parametrize("noise", [False, True])
def test_numbers_are_compared_with_the_last_one(tmp_path, noise):
    draw = np.random.default_rng(0)
    xs, walk = draw.normal(size=600), np.cumsum(draw.normal(size=600))
    last, caption = compared(tmp_path, "x,y", xs, walk if noise else xs, task="regression")
    assert last["not_better_than"] == (["no_change_"] if noise else [])
    assert ("is not better than the last one known (" in caption) == noise
    if not noise:
        total = last.get("total", last)
        best = min(total["no_change_mae"], total["mean_mae"], last["experts"]["season"])
        less = f"{1 - total['mae'] / best:.0%} less than by the best simple answer"
        assert caption.startswith(f"The mean absolute error: {less}, ")
