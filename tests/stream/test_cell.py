"""A stream's recurrent layer by name, and the options that go with it."""

import equinox as eqx
import pytest

from foretrace._experts.shape import Shape
from foretrace._options.cells import BY_NAME
from foretrace.cli import _main as cli
from foretrace.stream._config import StreamConfig
from foretrace.stream._model import _network
from foretrace.stream._model_config import ModelConfig

SHAPE = Shape(3, (), 2, classes=True, has_network=True, previous=False)


@pytest.mark.parametrize("name", BY_NAME)
def test_the_names_are_those_of_train(name):
    line = ["train", "copy", "--cell", name]
    assert type(cli._parse(line).config.network.cell) is BY_NAME[name]
    config = ModelConfig("tiny", depth=1, model_size=4, cell=name)
    network = eqx.filter_eval_shape(_network, config, SHAPE)
    assert type(network.blocks.cell) is BY_NAME[name].cell
    assert network.blocks.cell.input_size == 4


def test_without_a_name_it_is_the_lru_with_a_state_of_the_size():
    assert ModelConfig("tiny").cell_class is BY_NAME["lru"].cell
    # As many units as features.
    for size, cell, units in (("paper", "gru", None), ("paper", "s5", 64), ("tiny", None, 16)):
        assert ModelConfig(size, cell=cell).cell_options() == {"state_size": units}
    config = ModelConfig("tiny", cell="rglru", state_size=8)
    (found,) = StreamConfig("a.csv", model=config).without_effect(classes=True, format="csv")
    assert str(found) == "state_size has no effect: the cell rglru has no such option"


@pytest.mark.full
def test_a_run_says_its_cell_before_it_compiles(files, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    words = f"stream {files / 'a.csv'} --target y --size=tiny --depth=1 --model-size=4 --rows 2"
    words += f" --cell min-gru --rule Hybrid --run-dir {tmp_path / 'run'}"
    assert cli.main(words.split()) == 0
    out, err = capsys.readouterr()
    said = [err.index(one) for one in ("cell min-gru, rule hybrid, 1 layers", "compiling …")]
    assert said == sorted(said) and err.count("compiling …") == 1
    assert [line for line in out.splitlines() if len(line) > 80 and "run" not in line] == []
