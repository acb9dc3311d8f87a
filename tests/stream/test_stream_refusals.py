"""What streams and estimators refuse: a call, and words of its message; nothing is written."""

import math

import numpy as np
import pytest
import test_frozen as frozen
from streams import FEW

from foretrace import stream
from foretrace.cli import _main as cli
from foretrace.stream.model.model_config import ModelConfig
from foretrace.stream.runs.config import StreamConfig

pd = pytest.importorskip("pandas")
TWO_ROLES = "has two roles: name it once"

COMMANDS = {
    "stream a.csv": "--target COLUMN",
    "stream a.csv --target kk": "no column 'kk', only t, a, b, c, who, start, empty, y, k; did you",
    "stream a.csv --target k --horizon 2 --task classification": "--horizon predicts numbers",
    "stream a.csv --target y --forecast": "--horizon",
    "stream a.txt --target x": "next character",
    "stream a.csv --target y --known a": "needs a --horizon",
    "stream a.csv --target y --horizon 2 --known c": "c='red', expected a number",
    "stream a.csv --target y --horizon 2 --known a --numeric a": f"'a' {TWO_ROLES}",
    "stream a.csv --target y --horizon 2 --known a --ignore a+1": f"'a+1' {TWO_ROLES}",
    "stream a.csv --target y --horizon 2 --known d": "no column 'd', only t, a, b, c, who",
    "stream - --format csv --target y --horizon 2 --known a": "known: the next rows of standard in",
    "stream a.csv --target k --rule spatial(depth=1)": "use it with ONLINE",
    "stream a.csv --target k --rule other": "other",
    "stream a.csv --target k --size small --cell lstm": "elementwise-lstm",
    "stream a.csv --target k --member who --members 0": "members=0 must be at least 1",
    "predict absent a.csv": "no run at absent",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    frozen.write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_that_cannot_be_is_one_clear_message(words, folder, capsys):
    there = sorted(folder.iterdir())
    try:
        code = cli.main(words.split())
    except SystemExit as stop:
        code = stop.code
    out, err = capsys.readouterr()
    assert code == 2 and COMMANDS[words] in " ".join(err.split())
    assert "Traceback" not in err and out == "" and sorted(folder.iterdir()) == there


NO_NETWORK = "is an option of the network, which takes no part: choose the size small"
WHOLE = r"=\S+, expected a whole number, at least"
OPTIONS = [
    (lambda: StreamConfig("a.csv", target="y", predictions="out.txt"), "expected a file NAME.csv"),
    *(
        (lambda alarm=alarm: StreamConfig("a.csv", alarm=alarm), "expected CLASS=PROBABILITY")
        for alarm in (("up",), ("up=nan",), ("a=.1", "a=.2"))
    ),
    (lambda: StreamConfig("a.csv", target="y", id="y"), f"'y' {TWO_ROLES}"),
    (lambda: StreamConfig("a.csv", target="y", text=("y",)), f"'y' {TWO_ROLES}.*--task says"),
    (lambda: StreamConfig("a.csv", text=("x",), words=0), r"text=.*words=0 leaves no input"),
    (
        lambda: StreamConfig("a.csv", at_least=math.nan),
        "at_least=nan, expected a number, such as 0",
    ),
    (lambda: StreamConfig("a.csv", words=-1), "words=-1 must be at least 0"),
    (lambda: StreamConfig("a.csv", text=("x",), ignore=("x",)), f"'x' {TWO_ROLES}"),
    (
        lambda: StreamConfig("a.csv", target="y", categories=10_000_000),
        "categories=10000000 must be at most",
    ),
    (lambda: StreamConfig(pd.DataFrame({"a": [1.0]})), "source is a DataFrame, .*Classifier"),
    (lambda: ModelConfig(depth=3), f"depth=3 {NO_NETWORK}"),
    (lambda: ModelConfig("fast", learning_rate=1e-2), f"learning_rate=0.01 {NO_NETWORK}"),
    (lambda: ModelConfig("small", experts=("row",)), "is a network, which experts=.* leave out"),
    (
        lambda: ModelConfig("small", cell="rglru", state_size=4),
        "state_size is no option of the cell rglru",
    ),
    (lambda: ModelConfig(experts=("else",)), "must name some of baselines"),
    (lambda: ModelConfig("huge"), "size='huge' must be one of auto, fast, small"),
    (
        lambda: stream.Classifier(size="small", model=FEW),
        r"size='small' beside a model.*ModelConfig\(size='small', …\)",
    ),
    (lambda: stream.Classifier(model="small"), r"model='small', expected a ModelConfig"),
    (lambda: stream.Classifier(classes=1), f"classes{WHOLE}"),
    (lambda: stream.Forecaster(horizon=0), f"horizon{WHOLE}"),
    (lambda: stream.Forecaster(known=["x"], member="who"), "take one model for each member"),
    (lambda: stream.Forecaster(known="x"), r"known='x' must be a list of names, as \['x'\]"),
    (lambda: StreamConfig("a.csv", known="x"), r"known='x' must be a tuple of names, as \('x',\)"),
]


@pytest.mark.parametrize(("make", "words"), OPTIONS)
def test_options_that_do_not_fit_are_refused_at_once(make, words):
    with pytest.raises((ValueError, TypeError), match=words):
        make()


BAD_TIME = r'none of the 20 values.*in ISO format.*give the format, --time "on=%d.%m.%Y"'
RUNS = [
    ("a.csv", {"reset": "c"}, r"column 'c' holds '\w+'; the column of --reset must be true or 1"),
    ("a.csv", {"rows": -1}, "rows=-1 must not be negative"),
    ("row.csv", {"id": "row"}, "two columns 'row'.*another name"),
    ("dates.csv", {"time": ("on",)}, BAD_TIME),
    (
        "dates.csv",
        {"time": ("on=%Y/%m/%d",)},
        "is a date as %Y/%m/%d, such as '11.01.2025'",
    ),
    ("dates.csv", {"time": ("on=%Q%d",)}, "'%Q%d' is no format of a date"),
    ("none.csv", {}, "the first 40 rows have no value of 'y'.*--task"),
    (
        "texts.csv",
        {"task": "regression"},
        "have no number in 'y', but texts such as '2%' .numbers with a percent sign",
    ),
    ("texts.csv", {"at_least": 0.0}, "at_least=0.0 bounds numbers, and the target is a class"),
    ({"y": [1.0]}, {"target": None}, "no target is given.*a frame in memory"),
    ({"x": [], "y": []}, {}, "a frame in memory has no rows"),
    ({0: [1], "y": [2]}, {}, "column 0 of the frame is named by a int"),
    (pd.DataFrame([[1, 2]], columns=["y", "y"]), {}, "two columns 'y'"),
    ({"x": [[1]], "y": [1]}, {}, "row 1.*'x' holds a list"),
    (pd.Series([1.0]), {}, r"not from a Series.*series.to_frame\(\)"),
    (np.zeros((3, 2)), {}, "not from a ndarray.*pd.DataFrame"),
    ({"y": [1]}, {"tagret": "x"}, "no such option.*did you mean target"),
    (StreamConfig("a.csv", target="y"), {}, "target, model: options beside a conf"),
]


@pytest.mark.parametrize(("source", "options", "words"), RUNS)
def test_a_stream_that_cannot_be_is_refused(source, options, words, folder):
    (folder / "row.csv").write_text("row,y\n" + "".join(f"{i},{i % 2}\n" for i in range(30)))
    (folder / "dates.csv").write_text(
        "on,y\n" + "".join(f"{i}.01.2025,{i % 7 / 2}\n" for i in range(11, 31))
    )
    (folder / "none.csv").write_text("x,y\n" + "1,\n" * 40)
    (folder / "texts.csv").write_text("x,y\n" + "1,2%\n" * 20)
    options = {"target": "y", "model": FEW} | options
    source = pd.DataFrame(source) if isinstance(source, dict) else source
    with pytest.raises((ValueError, TypeError), match=words):
        stream.run(source, folder / "run", **options)
    assert (folder / "run").exists() == ("reset" in options)  # a later row stops it
