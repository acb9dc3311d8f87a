"""Rule and trained parts of a stream's network, where they are not given."""

import pytest

from foretrace._experts.shape import Shape
from foretrace.stream._model import resolve
from foretrace.stream._model_config import ModelConfig

pytestmark = [pytest.mark.exact, pytest.mark.usefixtures("standard_promotion")]
ONE_LAYER = {"depth": 1, "model_size": 16, "state_size": 16}
FOUND = [
    ({}, {}, "hybrid(depth=2)", True),
    ({}, {"train_encoder": False}, "hybrid(depth=2)", False),
    ({}, {"rule": "hybrid"}, "hybrid", False),
    ({}, {"rule": "HYBRID", "train_encoder": True}, "hybrid", True),
    ({}, {"rule": "hybrid(depth=1)"}, "hybrid(depth=1)", False),
    ({}, {"rule": "online(groups=1, depth=2)"}, "online(depth=2, groups=1)", True),
    ({}, {"rule": "spatial"}, "spatial", False),
    ({}, {"rule": "bptt"}, "bptt", False),
    ({"members": 30}, {}, "hybrid(depth=2)", True),
    ({"members": 3000}, {}, "hybrid", False),
    ({"members": 30, "delay": 100}, {}, "hybrid(depth=2)", True),
    ({"delay": 1000}, {}, "hybrid(depth=2)", True),
    ({"inputs": 500}, {}, "hybrid", False),
    ({}, {"depth": 4, "model_size": 128, "state_size": 64}, "hybrid", False),
    ({"inputs": 500}, ONE_LAYER, "hybrid(depth=1)", True),
]


@pytest.mark.parametrize(("of_shape", "of_model", "rule", "is_trained"), FOUND)
def test_credit_goes_through_all_layers_where_that_is_affordable_and_a_rule_stands_as_given(
    of_shape, of_model, rule, is_trained
):
    options = {"inputs": 10, "lagged": (), "outputs": 2, "classes": True, "previous": False}
    model = ModelConfig("small", **{"depth": 2, "model_size": 32} | of_model)
    config, _ = resolve(model, Shape(**options | of_shape))
    assert (config.rule, config.train_encoder) == (rule, is_trained)
