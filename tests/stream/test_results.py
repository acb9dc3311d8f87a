"""What a run says at its end, and how its settings follow from each other."""

import numpy as np
import pandas as pd
import pytest
from streams import FEW, NUMBERS, assert_same_run

from foretrace import stream
from foretrace._runs.metrics import read_metrics
from foretrace.cli import _main as cli
from foretrace.stream.model.model_config import ModelConfig
from foretrace.stream.runs import figure as _figure
from foretrace.stream.runs import first_look as _first_look
from foretrace.stream.runs import report as _report
from foretrace.stream.runs.config import StreamConfig


def test_a_run_from_python_is_that_of_the_command(files, tmp_path, monkeypatch):
    config = StreamConfig(str(files / "a.csv"), log_every=50, **NUMBERS | {"model": FEW})
    result = stream.run(config, tmp_path / "python", rows=150)
    words = "--target y --experts baselines row --log-every 50 --rows 150 --run-dir command"
    monkeypatch.chdir(tmp_path)
    assert cli.main(["stream", config.source, *words.split(), "--ignore", *config.ignore]) == 0
    assert_same_run(tmp_path / "python", tmp_path / "command")
    last = read_metrics(result.run_dir / "metrics.jsonl")[-1]
    assert result.rows == 150 and not result.stopped
    assert result.experts == last["experts"] and result.weights == last["weights"]
    heaviest = max(last["weights"].items(), key=lambda one: one[1])
    caption = _report.page(result.run_dir).renderables[0].caption
    assert "Weights: {} {:.2f}, ".format(*heaviest) in caption
    monkeypatch.setattr(_figure.figures, "draw_metrics", lambda *drawn: drawn[2][-1].curves)
    curves = _figure.figure(result.run_dir)
    assert next(iter(curves)) == heaviest[0]
    assert [x for x, _ in curves[heaviest[0]]] == [50, 100, 150]
    assert result.scores["mae"] == last["mae"] and 0.7 < result.scores["coverage"] <= 1
    with pytest.raises(ValueError, match="resume=True needs the run to continue: name its direc"):
        stream.run(config, resume=True)


def test_a_run_without_a_score_says_so_in_a_table_of_full_width(tmp_path, capsys):
    (tmp_path / "a.csv").write_text("id,a,y\na1,1.5,\na2,2,\na2,,3.4\na1,,3.1\n")
    few = ["--experts", "baselines", "row", "--run-dir", str(tmp_path / "run")]
    words = ["--target", "y", "--task", "regression", "--id", "id", "--waiting", "9", *few]
    assert cli.main(["stream", str(tmp_path / "a.csv"), *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.strip().startswith("No row could be scored yet: a score") for line in lines)


def test_scores_of_a_line_lose_nothing_to_larger_ones_before(tmp_path):
    ys = 1e9 + np.random.default_rng(0).normal(size=300)
    ys[0] = 0.0
    frame, options = pd.DataFrame({"x": np.arange(300) % 7, "y": ys}), {"log_every": 100}
    stream.run(frame, tmp_path / "run", target="y", model=FEW, **options)
    first, *others = read_metrics(tmp_path / "run" / "metrics.jsonl")[:3]
    assert first["no_change_mae"] > 1e6
    for at, line in zip((100, 200), others, strict=True):
        steps = np.abs(np.diff(ys))[at - 1 : at + 99]
        assert line["no_change_mae"] == pytest.approx(steps.mean(), rel=1e-9)
        assert line["no_change_rmse"] == pytest.approx(np.sqrt((steps**2).mean()), rel=1e-9)


@pytest.mark.full
def test_intervals_of_each_member_are_as_wide_as_its_own_errors(tmp_path, capsys):
    draw, shown = np.random.default_rng(0), []
    frame = pd.DataFrame({"shop": ["small", "large"] * 800, "sales": [100.0, 1000.0] * 800})
    frame["sales"] += frame["sales"] / 100 * draw.normal(size=1600)
    options = {"target": "sales", "member": "shop", "members": 3, "model": FEW}
    run = stream.run(frame, tmp_path / "run", on_prediction=shown.append, **options).run_dir
    ends = pd.DataFrame(shown)
    frame["held"] = frame["sales"].between(ends["sales_low"], ends["sales_high"])
    # One width for both would hold all of one's, and .8 of the other's.
    assert frame[800:].groupby("shop")["held"].mean().between(0.84, 0.96).all()
    shares, last = frame.groupby("shop")["held"].mean(), read_metrics(run / "metrics.jsonl")[-1]
    assert 4.0 < last["mean_mae"] < 6.0  # of all shops together: 450
    assert last["worst_member"] == shares.idxmin()
    assert last["worst_member_coverage"] == pytest.approx(shares.min(), abs=0.01)
    assert cli.main(["report", str(run)]) == 0
    words = f"of {shares.idxmin()}'s, the least of a member"
    assert words in " ".join(capsys.readouterr().out.split())


DRAW = np.random.default_rng(0)
XS, WALK = DRAW.normal(size=600), np.cumsum(DRAW.normal(size=600))
COIN = np.where(DRAW.uniform(size=600) < 0.7, "heads", "tails")
WORSE = {
    "coin": (COIN, ["majority_"], "is not better than the most frequent class ("),
    "walk": (WALK, ["no_change_"], "is not better than the last one known ("),
}


@pytest.mark.parametrize("name", WORSE)
def test_what_is_no_better_than_a_baseline_is_said(tmp_path, name):
    ys, baselines, words = WORSE[name]
    options = {"target": "y", "model": FEW}
    run = stream.run(pd.DataFrame({"x": XS, "y": ys}), tmp_path / "run", **options).run_dir
    last, caption = (
        read_metrics(run / "metrics.jsonl")[-1],
        _report.page(run).renderables[0].caption,
    )
    assert last["kind"] == "result" and last["not_better_than"] == baselines
    assert words in caption and "try more rows, other inputs, or" in caption
    assert caption.startswith("The accuracy, ") == (name == "coin")
    assert ("the last one known" in caption) == (name == "walk")


def test_a_column_that_has_the_late_target_already_is_told_with_the_command():
    x = np.random.default_rng(0).normal(size=60).cumsum()
    for y, words in ((x[24:], "--target x --horizon 24 --ignore y"), (x[:36] ** 2, None)):
        rows = [{"x": str(a), "c": "1", "y": str(b)} for a, b in zip(x, y[:50], strict=False)]
        rows += [{"x": str(a), "c": "1", "y": ""} for a in x[len(rows) :]]
        found = _first_look._shifted(StreamConfig("a.csv", "y", delay=30), ["c", "x"], rows)
        assert words is None and not found or words in found[0]


def test_one_bad_prediction_is_no_fault_of_the_inputs():
    record = {"not_better_than": ["no_change_"]}
    for rmse, words in ((2.0, "inputs may not tell"), (30.0, "few predictions have most of")):
        scores = {"mae": 1.0, "rmse": rmse, "no_change_mae": 1.0}
        assert words in _report._not_better(record, scores)


@pytest.mark.parametrize(
    ("days", "what"), [((1, 2, 2, 9), "date"), ((1, 3, 2, 9), "row"), ((1, None, 2, 9), "row")]
)
def test_a_picture_has_dates_where_rows_have_them_in_order(days, what):
    lines = [{"step": 10 * i, "date": f"2024-01-0{day}"} for i, day in enumerate(days)]
    title, places = _figure._places(lines)
    assert title == what and len(places) == len(lines) and places == sorted(places)
    assert what == "date" or places == [0, 10, 20, 30]


def test_a_column_that_changes_its_level_is_told_with_the_row_by_which_it_was_seen(tmp_path):
    a, b = np.random.default_rng(0).normal(size=(2, 900))
    a[640:] += 400.0
    options = {"task": "regression", "model": ModelConfig(experts=("row",)), "log_every": 100}
    frame = pd.DataFrame({"a": a, "b": b, "y": b})
    run = stream.run(frame, tmp_path / "run", target="y", **options).run_dir
    *lines, last = read_metrics(run / "metrics.jsonl")
    row, before, _, now, _ = last["changes"].pop("a")
    assert row == 700 and abs(before) < 0.3 and abs(now - 400) < 1 and not last["changes"]
    told = [line for line in lines if "warnings" in line]
    assert [line["step"] for line in told] == [700] and "'a'" in told[0]["warnings"][0]
    assert f"Columns that changed: a from {before:.3g}" in _report.page(run).renderables[0].caption
