"""A stream's recurrent layer by name: names, options, resumed runs."""

import equinox as eqx
import pytest

from foretrace._experts.shape import Shape
from foretrace._options.cells import BY_NAME
from foretrace._runs.directory import read_config_as
from foretrace.cli import _main as cli
from foretrace.stream._config import StreamConfig
from foretrace.stream._model import _network
from foretrace.stream._model_config import ModelConfig
from foretrace.stream._predict import predictions

SIZES = {"size": "tiny", "depth": 1, "model_size": 4}
SHAPE = Shape(3, (), 2, classes=True, has_network=True, previous=False)


@pytest.mark.parametrize("name", BY_NAME)
def test_the_names_are_those_of_train(name):
    line = ["train", "copy", "--cell", name]
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
    assert ModelConfig("tiny").cell_options() == {"state_size": 16}
    config = ModelConfig("tiny", cell="rglru", state_size=8)
    (found,) = StreamConfig("a.csv", model=config).without_effect(classes=True, format="csv")
    assert str(found) == "state_size has no effect: the cell rglru has no such option"


@pytest.mark.full
def test_a_resumed_run_and_its_predictions_have_the_cell_of_the_run(
    files, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "80")
    source, run = str(files / "a.csv"), tmp_path / "run"
    options = [f"--{name.replace('_', '-')}={value}" for name, value in SIZES.items()]
    arguments = ["stream", source, "--target", "y", *options, "--run-dir", str(run)]
    assert cli.main([*arguments, "--cell", "min-gru", "--rule", "Hybrid", "--rows", "5"]) == 0
    out, err = capsys.readouterr()
    assert "cell min-gru, rule hybrid, 1 layers" in err
    assert err.count("compiling …") == 1 and err.index("cell min-gru") < err.index("compiling …")
    assert [line for line in out.splitlines() if len(line) > 80 and str(run) not in line] == []
    assert read_config_as(run, StreamConfig).model.cell == "min-gru"
    assert cli.main(["resume", str(run), "--rows", "9"]) == 0
    assert len(list(predictions(run, source, rows=3)[1])) == 3
    code = cli.main(["resume", str(run), "--cell", "lru", "--rule", "hybrid"])
    assert code == 2 and "cell: min-gru, lru" in capsys.readouterr().err
