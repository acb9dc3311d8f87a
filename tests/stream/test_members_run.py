"""A run on many members: exact resume, resets, answers, counts, clear errors; in river."""

import copy
import pickle

import numpy as np
import pytest
from test_stream_run import (
    COUNT,
    TINY,
    assert_same_run,
    state,
    table,
)
from tiers import fast

from foretrace._runs.metrics import read_metrics
from foretrace.cli import _main as cli
from foretrace.stream import _river as stream
from foretrace.stream._config import StreamConfig
from foretrace.stream._model_config import ModelConfig
from foretrace.stream._predict import predictions
from foretrace.stream._run import follow

pytestmark = pytest.mark.usefixtures("standard_promotion")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Rows of five sensors in turns of random length, one without a name; random episodes."""
    folder, rng = tmp_path_factory.mktemp("members"), np.random.default_rng(1)
    rows = [
        row
        | {
            "who": ["a", "b", "c", "d", ""][int(rng.integers(5))],
            "start": str(int(rng.random() < 0.05)),
        }
        for row in table()
    ]
    lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
    (folder / "a.csv").write_text("\n".join(lines) + "\n")
    alone = [row for row in rows if row["who"] == "a"]
    only = [name for name in alone[0] if name != "who"]
    lines = [",".join(only), *(",".join(row[name] for name in only) for row in alone)]
    (folder / "alone.csv").write_text("\n".join(lines) + "\n")
    return folder


RUNS = {
    "late": {
        "target": "class",
        "member": "who",
        "members": 4,
        "delay": 2,
    },
    "episodes": {"target": "z", "task": "regression", "reset": "start", "horizon": 2},
    "everything": {
        "target": "z",
        "member": "who",
        "members": 3,
        "reset": "start",
        "horizon": 2,
        "delay": 1,
    },
    "in chunks": {
        "target": "class",
        "member": "who",
        "members": 3,
        "reset": "start",
        "delay": 2,
        "chunk": 4,
        "model": ModelConfig(experts=("row",)),
    },
}


@pytest.mark.program
@pytest.mark.parametrize("name", fast(["in chunks", "everything", "late", "episodes"]))
def test_a_resumed_run_is_the_undisturbed_one_bit_for_bit(files, tmp_path, name):
    config = StreamConfig(str(files / "a.csv"), **TINY | RUNS[name])
    whole = follow(config, tmp_path / "whole", show_progress=False)
    assert whole.position.row == COUNT
    for i, rows in enumerate((33, 101, 222, None)):
        follow(config, tmp_path / "cut", rows=rows, resume=i > 0, show_progress=False)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")
    last = read_metrics(tmp_path / "whole" / "metrics.jsonl")[-1]
    counts = last["members"]
    assert last["refused"] == 0 and counts["joins"] - counts["evictions"] == counts["present"]
    assert counts["present"] == (min(5, config.members) if config.member else 1)
    assert (counts["evictions"] > 0) == (config.members < 5) and (counts["resets"] > 5) == (
        config.reset is not None
    )


@pytest.mark.full
@pytest.mark.exact
def test_one_member_of_many_is_a_stream_of_its_own(files, tmp_path):
    """One member's rows, with or without its name: the same network, and the same memory."""
    options = {"target": "z", "task": "regression", "reset": "start", **TINY}
    follow(
        StreamConfig(str(files / "alone.csv"), **options), tmp_path / "alone", show_progress=False
    )
    lines = (files / "a.csv").read_text().splitlines(keepends=True)
    where = lines[0].rstrip().split(",").index("who")
    rows = [line for line in lines[1:] if line.rstrip().split(",")[where] == "a"]
    (tmp_path / "a.csv").write_text(lines[0] + "".join(rows))
    follow(
        StreamConfig(str(tmp_path / "a.csv"), member="who", **options),
        tmp_path / "many",
        show_progress=False,
    )
    one, two = state(tmp_path / "alone"), state(tmp_path / "many")
    for name in one:
        # What belongs to a member has a place for each, and one for rows that are missing: the
        # first is this member's.
        there, here = two[name], one[name]
        if there.shape != here.shape:
            there, here = there[:1], here[:1]
        np.testing.assert_allclose(there, here, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.full
def test_predicting_changes_nothing_and_knows_whose_row_it_is(files, tmp_path):
    config = StreamConfig(str(files / "a.csv"), **TINY | RUNS["late"])
    follow(config, tmp_path / "run", rows=300, show_progress=False)
    before = (tmp_path / "run" / "checkpoint.safetensors").read_bytes()
    names, rows = predictions(tmp_path / "run", str(files / "a.csv"), rows=20)
    found = list(rows)
    assert names == ["row", "who", "class", "probability"]
    assert {row["who"] for row in found} == {*"abcd", ""}
    assert {row["class"] for row in found} <= {"up", "down"}
    assert (tmp_path / "run" / "checkpoint.safetensors").read_bytes() == before
    assert list(predictions(tmp_path / "run", str(files / "a.csv"), rows=20)[1]) == found


@pytest.mark.full
def test_a_source_without_the_column_of_episodes_is_refused(files, tmp_path):
    config = StreamConfig(str(files / "a.csv"), **TINY | RUNS["episodes"])
    follow(config, tmp_path / "run", rows=50, show_progress=False)
    lines = (files / "a.csv").read_text().splitlines()
    at = lines[0].split(",").index("start")
    without = (
        ",".join(cell for i, cell in enumerate(line.split(",")) if i != at) for line in lines
    )
    (tmp_path / "b.csv").write_text("\n".join(without) + "\n")
    with pytest.raises(ValueError, match="it lacks 'start'"):
        predictions(tmp_path / "run", str(tmp_path / "b.csv"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--target class --member whom", "no column 'whom'"),
        (
            "--target class --member class",
            "'class' cannot be the --member, the --reset or the --id",
        ),
        (
            "--target class --member who --categorical who",
            "'who' cannot be the --member, the --reset or the --id",
        ),
        ("--target class --member who --members 0", "members=0 must be at least 1"),
        ("--target class --member who --members 100000000", "there is room for"),
    ],
)
def test_bad_input_is_one_clear_message(capsys, files, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["stream", str(files / "a.csv"), *arguments.split()]) == 2
    out, err = capsys.readouterr()
    assert message in " ".join(err.split()) and "Traceback" not in err and out == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.full
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reset": "color"}, "column 'color' holds 'red'; the column of --reset must be true or 1"),
        (
            {"member": "who", "members": 2, "when_full": "stop"},
            "one member more than the 2 slots; raise --members",
        ),
    ],
)
def test_rows_that_cannot_be_told_apart_stop_the_run(files, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        follow(
            StreamConfig(str(files / "a.csv"), target="class", **TINY, **options), tmp_path / "run"
        )


def rows(count, seed=0):
    rng = np.random.default_rng(seed)
    return [
        ({"x": float(rng.normal()), "who": "ab"[int(rng.integers(2))]}, float(rng.normal()))
        for _ in range(count)
    ]


@pytest.mark.program
@pytest.mark.parametrize("kind", fast([stream.Classifier, stream.Regressor]))
def test_an_estimator_keeps_its_members_apart(kind):
    model = kind("tiny", features=4, member="who", members=2)
    for x, y in rows(20):
        model.learn_one(x, y > 0 if kind is stream.Classifier else y)
    answer = getattr(model, "predict_proba_one", model.predict_one)
    a, b = ({"x": 1.0, "who": name} for name in "ab")
    before, other = answer(a), answer(b)
    assert before != other and before == answer(a)
    model.reset("a")
    assert answer(b) == other and answer(a) == answer({"x": 1.0, "who": "new"}) != before
    model.leave("b")
    assert answer(b) == answer(a)
    others = [pickle.loads(pickle.dumps(model)), copy.deepcopy(model)]
    for x, y in rows(10, seed=1):
        for one in (model, *others):
            one.learn_one(x, y > 0 if kind is stream.Classifier else y)
    assert all(getattr(one, answer.__name__)(a) == answer(a) for one in others) and answer(
        a
    ) != answer(b)
    assert "who" not in model._intake.encoder.columns
    with pytest.raises(KeyError, match="'c' is not among the 2 members"):
        model.leave("c")
    with pytest.raises(ValueError, match="the row has no 'who'.*its features are x"):
        model.learn_one({"x": 1.0}, 1.0)
    with pytest.raises(KeyError, match="is no member"):
        kind("tiny").reset("a")


@pytest.mark.full
def test_rows_of_other_members_do_not_shift_a_forecast():
    baselines = ModelConfig(experts=("baselines",))
    model = stream.Forecaster(2, features=4, model=baselines, member="who")
    for i in range(20):
        model.learn_one(5.0 + i % 3, {"who": "a"})
    before = model.forecast(2, member="a")
    for i in range(20):
        model.learn_one(1000.0 * i, {"who": "b"})
    assert model.forecast(2, member="a") == before != model.forecast(2)
    # As wide as the errors of each; of one that starts anew, those of all.
    own, other = (np.diff(model.forecast_interval(2, member=name)) for name in "ab")
    assert (own < 0.5 * other).all()
    after = pickle.loads(pickle.dumps(model))
    assert after.forecast(2, member="a") == before and after.forecast(2) == model.forecast(2)
    assert after.forecast_interval(2, member="a") == model.forecast_interval(2, member="a")


def test_intervals_of_each_member_are_as_wide_as_its_own_errors(tmp_path, capsys):
    draw, shown = np.random.default_rng(0), []
    sizes, source = {"small": 1.0, "large": 10.0}, tmp_path / "shops.csv"
    labels = [
        (name, 100 * size + size * draw.normal())
        for _ in range(800)
        for name, size in sizes.items()
    ]
    source.write_text("\n".join(["shop,sales", *(f"{name},{value}" for name, value in labels)]))
    model = ModelConfig(experts=("baselines", "row"))
    config = StreamConfig(str(source), target="sales", member="shop", members=3, model=model)
    result = follow(config, tmp_path / "run", show_progress=False, on_prediction=shown.append)

    def held(name, first=0):
        found = [
            row["sales_low"] <= value <= row["sales_high"]
            for row, (whose, value) in zip(shown[first:], labels[first:], strict=True)
            if whose == name
        ]
        return np.mean(found)

    # One width for both would hold all of one's, and .8 of the other's.
    assert all(0.84 < held(name, 800) < 0.96 for name in sizes)
    worst = min(sizes, key=held)
    last = read_metrics(result.run_dir / "metrics.jsonl")[-1]
    assert last["worst_member"] == worst
    assert last["worst_member_coverage"] == pytest.approx(held(worst), abs=0.01)
    assert cli.main(["report", str(result.run_dir)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"of {worst}'s, the least of a member" in said
