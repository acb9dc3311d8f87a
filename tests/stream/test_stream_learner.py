"""Rule and trained parts of a stream's network, where they are not given."""

import dataclasses

import pytest

from foretrace._experts.shape import Shape
from foretrace.stream._model import resolve
from foretrace.stream._model_config import ModelConfig

pytestmark = [pytest.mark.exact, pytest.mark.usefixtures("standard_promotion")]


@pytest.mark.parametrize(
    ("options", "asked", "found"),
    [
        ({}, (None, None), ("hybrid(depth=2)", True)),
        ({}, (None, False), ("hybrid(depth=2)", False)),
        ({}, ("hybrid", None), ("hybrid", False)),
        ({}, ("HYBRID", True), ("hybrid", True)),
        ({}, ("hybrid(depth=1)", None), ("hybrid(depth=1)", False)),
        ({}, ("online(groups=1, depth=2)", None), ("online(depth=2, groups=1)", True)),
        ({}, ("spatial", None), ("spatial", False)),
        ({}, ("bptt", None), ("bptt", False)),
        ({"members": 30}, (None, None), ("hybrid(depth=2)", True)),
        ({"members": 3000}, (None, None), ("hybrid", False)),
        ({"members": 30, "delay": 100}, (None, None), ("hybrid(depth=2)", True)),
        ({"delay": 1000}, (None, None), ("hybrid(depth=2)", True)),
        ({"inputs": 500}, (None, None), ("hybrid", False)),
        ({"depth": 4, "model_size": 128, "state_size": 64}, (None, None), ("hybrid", False)),
        (
            {"depth": 1, "model_size": 16, "state_size": 16, "inputs": 500},
            (None, None),
            ("hybrid(depth=1)", True),
        ),
    ],
)
def test_credit_goes_through_all_layers_where_that_is_affordable_and_a_rule_stands_as_given(
    options, asked, found
):
    rule, train_encoder = asked
    options = {"inputs": 10, "depth": 2, "model_size": 32} | options
    names = {field.name for field in dataclasses.fields(Shape)} & options.keys()
    shape = Shape(
        **{name: options.pop(name) for name in names},
        lagged=(),
        outputs=2,
        classes=True,
        previous=False,
    )
    model = ModelConfig("small", rule=rule, train_encoder=train_encoder, **options)
    config, _ = resolve(model, shape)
    assert (config.rule, config.train_encoder) == found
