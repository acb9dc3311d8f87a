"""Every option of a stream acts, is refused, or is said to have no effect."""

import dataclasses
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.stream._config import StreamConfig
from foretrace.stream._estimator import OnlineEstimator
from foretrace.stream._model_config import ModelConfig
from foretrace.stream._plan import make_plan, open_source

ROW = ModelConfig(experts=("row",))
NETWORK = ModelConfig("tiny", depth=1, model_size=4, state_size=3)
BASES = {
    "a mixture, of a class": {"target": "c", "model": ROW},
    "a mixture, of a number": {"target": "y", "model": ROW},
    "a network, of a class": {"target": "c", "model": NETWORK},
    "a network, of a number": {"target": "y", "model": NETWORK},
}

OTHER = {
    "task": "regression",
    "horizon": 2,
    "delay": 2,
    "coverage": 0.5,
    "chunk": 3,
    "previous": False,
    "member": "c",
    "members": 2,
    "when_full": "stop",
    "reset": "r",
    "id": "x",
    "numeric": ("text",),
    "categorical": ("x",),
    "time": ("text",),
    "ignore": ("x",),
    "delimiter": ";",
    "outliers": "mask",
    "bound": 2.0,
    "categories": 3,
    "classes": 2,
    "look_ahead": 20,
}
"""Another value for each option of a stream but those below."""

OTHER_MODEL = {
    "size": "medium",
    "experts": ("short",),
    "depth": 2,
    "model_size": 5,
    "state_size": 4,
    "cell": "s5",
    "rule": "truncated",
    "learning_rate": 1e-2,
    "clip": 0.1,
    "train_encoder": False,
    "seed": 1,
}

NOT_ABOUT_SCORES = set(
    "source target format model log_every checkpoint_every predictions encoding bad_rows "
    "checkpoint_seconds backend".split()
)
"""Options of reading, predicting and writing, of members, and of other data."""


def test_every_option_is_here():
    assert {field.name for field in dataclasses.fields(StreamConfig)} == {*OTHER} | NOT_ABOUT_SCORES
    assert {field.name for field in dataclasses.fields(ModelConfig)} == {*OTHER_MODEL}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Return a file on which every option can act: outliers, categories, texts, late kinds."""
    path = tmp_path_factory.mktemp("data") / "a.csv"
    lines = ["x,text,category,r,c,y"]
    for i in range(120):
        x = 1000 if i % 40 == 39 else f"{(i * i) % 7 + (i % 3) / 8}"
        text = f"t{i % 5}" if i > 30 else f"{i % 4}"
        lines.append(
            f"{x},{text},{'abcde'[i * i % 5]},{int(i % 10 == 0)},"
            f"{'abc'[i * i % 3 % (2 + i // 60)]},{i * i % 11}"
        )
    path.write_text("\n".join(lines) + "\n")
    return path


def found_without_effect(source, options):
    """Return the configuration, and the names of its options without effect; None if refused."""
    try:
        config = StreamConfig(str(source), **options)
        reader = open_source(config)
        plan = make_plan(config, reader, [row for row, _ in reader.rows()])
    except ValueError:
        return None
    kinds = {column.kind for column in plan.columns}
    found = config.without_effect(classes=bool(plan.classes), format=reader.format, kinds=kinds)
    return config, [name for options in found for name in options.names]


def assert_named_once(source, base, chosen, of_model=()):
    """Assert that of options with another value each without effect is named, once."""
    try:
        changed = {name: OTHER_MODEL[name] for name in of_model}
        model = dataclasses.replace(BASES[base]["model"], **changed)
    except ValueError:
        return
    options = BASES[base] | {"model": model} | {name: OTHER[name] for name in chosen}
    if (pair := found_without_effect(source, options)) is None:
        return
    config, found = pair
    # No default is ever named; `contexts` are among the experts of all.
    assert len(found) == len(set(found)) and {*found} - {"experts contexts"} <= {*chosen, *of_model}
    if "network" not in config.model.expert_names():
        assert {*of_model} & {"learning_rate", "clip", "seed"} <= {*found}


@pytest.mark.parametrize("base", sorted(BASES))
def test_an_option_alone_is_named_at_most_once(source, base):
    for name in OTHER:
        assert_named_once(source, base, [name])
    for name in OTHER_MODEL:
        assert_named_once(source, base, [], [name])


TOGETHER = st.sets(st.sampled_from(sorted({*OTHER} - {"delimiter", "numeric"})))


@given(st.sampled_from([*BASES]), TOGETHER, st.sets(st.sampled_from([*OTHER_MODEL])))
def test_whatever_is_given_each_option_without_effect_is_named_once(source, base, some, of_model):
    assert_named_once(source, base, some, of_model)


@pytest.mark.parametrize(
    ("kind", "options", "named"),
    [
        ("Forecaster", {"model": ModelConfig(clip=2.0, seed=3)}, ["clip, seed"]),
        ("Regressor", {"model": ModelConfig(experts=("contexts", "row"))}, ["experts contexts"]),
        ("Classifier", {"members": 3}, ["members"]),
        ("Regressor", {"model": ModelConfig("tiny", rule="rtrl", seed=3)}, []),
    ],
)
def test_estimators_warn_of_options_without_effect(kind, options, named):
    stream = pytest.importorskip("foretrace.stream")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = getattr(stream, kind)(**options)
    assert isinstance(model, OnlineEstimator) and model.clone is not None
    assert [str(warning.message).split(" ha")[0] for warning in caught] == [
        f"{kind}: {names}" for names in named
    ]
    assert all(warning.filename == __file__ for warning in caught)
