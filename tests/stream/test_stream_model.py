"""The model of a stream: what follows from its options where others are not given."""

import equinox as eqx
import pytest
from tiers import fast

from foretrace._options.cells import CONFIGS, cell_config
from foretrace.cli import _main as cli
from foretrace.stream.experts.shape import Shape
from foretrace.stream.model.model import _network, resolve
from foretrace.stream.model.model_config import ModelConfig
from foretrace.stream.runs.config import StreamConfig

SHAPE = Shape(3, (), 2, classes=True, has_network=True, previous=False)


NAMES = ["gru", "rtu+gru", *(kind().name for kind in CONFIGS.values())]


@pytest.mark.parametrize("name", fast(NAMES, 2))
def test_the_names_are_those_of_train(name):
    line = ["train", "copy", "--cell", name]
    assert cli._parse(line).config.network.cell == cell_config(name, {})
    config = ModelConfig("small", depth=1, model_size=4, cell=name)
    network = eqx.filter_eval_shape(_network, config, SHAPE)
    assert type(network.blocks.cell) is cell_config(name, {}).cell
    assert network.blocks.cell.input_size == 4


def test_experts_and_chunks_follow_from_the_model():
    fast_size = ModelConfig("fast")
    left_out = {*ModelConfig().expert_names()} - {*fast_size.expert_names()}
    assert left_out == {"events", "memory", "distant"}
    assert ModelConfig("small").expert_names() == ("baselines", "network")
    with_network = ModelConfig(depth=2, experts=("row", "network"))
    assert with_network.expert_names() == ("baselines", "row", "network")
    assert StreamConfig("a.csv", model=fast_size).chunk == 32
    assert StreamConfig("a.csv", target="z", model=fast_size, member="who").chunk == 32
    assert StreamConfig("a.csv").chunk == 32 and StreamConfig("-", model=fast_size).chunk == 32
    assert StreamConfig("-").chunk == StreamConfig("a.csv", outliers="stop").chunk == 1


ONE_LAYER = {"depth": 1, "model_size": 16, "state_size": 16}
FOUND = [
    ({}, {}, "hybrid(depth=2)"),
    ({}, {"rule": "hybrid"}, "hybrid"),
    ({}, {"rule": "online(groups=1, depth=2)"}, "online(depth=2, groups=1)"),
    ({}, {"rule": "spatial"}, "spatial"),
    ({"members": 30}, {}, "hybrid(depth=2)"),
    ({"members": 3000}, {}, "hybrid"),
    ({"delay": 10}, {}, "hybrid(depth=2)"),
    ({"members": 30, "delay": 100}, {}, "hybrid"),
    ({"inputs": 500}, {}, "hybrid"),
    ({}, {"depth": 4, "model_size": 128, "state_size": 64}, "hybrid"),
    ({"inputs": 500}, ONE_LAYER, "hybrid(depth=1)"),
]


@pytest.mark.exact
@pytest.mark.usefixtures("standard_promotion")
@pytest.mark.parametrize(("of_shape", "of_model", "rule"), FOUND)
def test_credit_goes_through_all_layers_where_that_is_affordable_and_a_rule_stands_as_given(
    of_shape, of_model, rule
):
    options = {"inputs": 10, "lagged": (), "outputs": 2, "classes": True, "previous": False}
    model = ModelConfig("small", **{"depth": 2, "model_size": 32} | of_model)
    config, _ = resolve(model, Shape(**options | of_shape))
    assert config.rule == rule
