"""A stream's recurrent layer by name: names, resumed runs, estimators, refusals."""

import dataclasses

import equinox as eqx
import numpy as np
import pytest
from test_stream_run import TINY, files

from foretrace._experts.shape import Shape
from foretrace._runs.directory import RunError, read_config_as
from foretrace.cli import _main as cli
from foretrace.experiment._cells import BY_NAME
from foretrace.stream import _river as stream
from foretrace.stream._config import StreamConfig
from foretrace.stream._model import _network
from foretrace.stream._model_config import ModelConfig
from foretrace.stream._predict import predictions
from foretrace.stream._run import follow

__all__ = ["files"]  # a fixture
pytestmark = pytest.mark.usefixtures("standard_promotion")
SIZES = {"size": "tiny", "depth": 1, "model_size": 4}
SHAPE = Shape(3, (), 2, classes=True, has_network=True)


@pytest.mark.parametrize("name", BY_NAME)
def test_the_names_are_those_of_train(name):
    line = cli._spelled_out(["train", "copy", "--cell", name])
    assert type(cli._parse(line).config.network.cell) is BY_NAME[name]
    config = ModelConfig(**SIZES, cell=name)
    network = eqx.filter_eval_shape(_network, config, SHAPE)
    assert type(network.blocks.cell) is BY_NAME[name].cell
    assert network.blocks.cell.input_size == SIZES["model_size"]


def test_without_a_name_it_is_the_lru():
    assert ModelConfig("tiny").cell_class is BY_NAME["lru"].cell
    # As many units as features.
    assert ModelConfig("paper", cell="gru").cell_options() == {"state_size": None}
    assert ModelConfig("paper", cell="s5").cell_options() == {"state_size": 64}
    assert ModelConfig("tiny", r_min=0.5).cell_options() == {
        "state_size": 16,
        "r_min": 0.5,
        "r_max": 1.0,
    }


def test_what_cannot_be_is_said():
    with pytest.raises(
        ValueError, match="cell='lstm' must be one of lru, linear-rnn, gru, elementwise-lstm"
    ):
        ModelConfig("tiny", cell="lstm")
    with pytest.raises(ValueError, match="size='huge' must be one of auto, fast, tiny"):
        ModelConfig("huge")
    with pytest.raises(
        ValueError, match="cell=gru is an option of the network, which takes no part: choose a size"
    ):
        stream.Classifier(model=ModelConfig(cell="gru"))
    config = ModelConfig("tiny", cell="rglru", state_size=8, r_min=0.5)
    (found,) = StreamConfig("a.csv", model=config).without_effect(classes=True, format="csv")
    assert str(found) == "state_size, r_min have no effect: the cell rglru has no such option"


def test_a_resumed_run_and_its_predictions_have_the_cell_of_the_run(
    files, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "80")
    source, run = str(files / "a.csv"), tmp_path / "run"
    options = [f"--{name.replace('_', '-')}={value}" for name, value in SIZES.items()]
    arguments = ["stream", source, "--target", "z", *options, "--run-dir", str(run)]
    assert cli.main([*arguments, "--cell", "min-gru", "--rule", "Hybrid", "--rows", "5"]) == 0
    out, err = capsys.readouterr()
    assert "cell min-gru, rule hybrid, 1 layers" in err
    assert err.count("compiling …") == 1 and err.index("cell min-gru") < err.index("compiling …")
    assert [line for line in out.splitlines() if len(line) > 80 and str(run) not in line] == []
    assert read_config_as(run, StreamConfig).model.cell == "min-gru"
    assert cli.main(["stream", source, "--resume", "--run-dir", str(run), "--rows", "9"]) == 0
    assert len(list(predictions(run, source, rows=3)[1])) == 3
    code = cli.main([*arguments, "--resume", "--cell", "lru", "--rule", "hybrid"])
    assert code == 2 and "cell: min-gru, lru" in capsys.readouterr().err


def test_checkpoints_from_before_there_was_a_choice_go_on_with_the_lru(files, tmp_path):
    config = StreamConfig(str(files / "a.csv"), target="z", **TINY)
    follow(config, tmp_path / "run", rows=5, show_progress=False)
    text = (tmp_path / "run" / "config.json").read_text()
    assert text.count('"cell": null') == 1
    lines = [line for line in text.splitlines(keepends=True) if '"cell": null' not in line]
    (tmp_path / "run" / "config.json").write_text("".join(lines))
    assert (
        follow(config, tmp_path / "run", resume=True, rows=6, show_progress=False).position.row == 6
    )
    other = dataclasses.replace(config, model=dataclasses.replace(config.model, cell="ind-rnn"))
    with pytest.raises(RunError, match="cell: None, ind-rnn"):
        follow(other, tmp_path / "run", resume=True, show_progress=False)


@pytest.mark.program
@pytest.mark.parametrize("kind", [stream.Classifier, stream.Regressor, stream.Forecaster])
def test_an_estimator_learns_with_it_and_is_cloned_with_it(kind):
    model = kind(model=ModelConfig(size="tiny", cell="gru", rule="hybrid"), features=4).clone()
    assert model.model.cell == "gru"
    for i in range(5):
        x, y = {"x": i % 2}, i % 2
        model.learn_one(float(y), x) if kind is stream.Forecaster else model.learn_one(x, y)
    state = model._intake.mixture.packing.unpack(model._state).network
    assert type(state.learner.network.blocks.cell) is BY_NAME["gru"].cell
    answer = (
        model.forecast(1) if kind is stream.Forecaster else [float(model.predict_one({"x": 1}))]
    )
    assert np.isfinite(answer).all()
