"""Options of a stream act, are refused, or are said to have no effect."""

import pytest

from foretrace.stream.model.model_config import ModelConfig
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.ignored import ignored

TEXT, MEMBERS = {"format": "text"}, {"member": "who"}
CASES = {
    "members": (2, {}, MEMBERS),
    "numeric": (("x",), TEXT, {}),
    "categorical": (("x",), TEXT, {}),
    "time": (("x",), TEXT, {}),
    "text": (("x",), TEXT, {}),
    "ignore": (("x",), TEXT, {}),
    "delimiter": (";", {"format": "jsonl"}, {"format": "tsv"}),
    "encoding": ("latin-1", {"format": "parquet"}, TEXT),
    "bad_rows": ("skip", TEXT, {"format": "jsonl"}),
    "outliers": ("mask", {"kinds": ["categorical"]}, {"kinds": [], "is_class": False}),
    "categories": (3, {"kinds": ["numeric"]}, {"kinds": ["categorical"]}),
    "words": (8, {"kinds": ["numeric"]}, {"kinds": ["text"]}),
    "classes": (2, {"is_class": False}, {"is_class": True}),
    "alarm": (("a=0.5",), {"is_class": False}, {"is_class": True}),
    "coverage": (0.5, {"is_class": True}, {"is_class": False}),
    "experts contexts": (("contexts",), {"is_class": False}, {"is_class": True}),
    "experts gradient": (("row", "gradient"), {"is_class": False}, {"is_class": True}),
    "experts raw": (("raw",), {"is_class": True}, {"is_class": False}),
    "experts seasonal": (("seasonal",), {"is_class": True}, {"is_class": False}),
}
"""Another value of each option that may be ignored, where it is, and where it has an effect."""


def without_effect(**given):
    """Return the names of options without effect; classes are predicted from a table of CSV."""
    of_rows = {"is_class": True, "format": "csv", "kinds": ["numeric", "categorical"]}
    of_rows |= {name: given.pop(name) for name in of_rows.keys() & given.keys()}
    of_rows["classes"] = of_rows.pop("is_class")
    of_model = {name: given.pop(name) for name in vars(ModelConfig()).keys() & given.keys()}
    config = StreamConfig("a.csv", **given, model=ModelConfig(**of_model))
    return [line.partition(" has no effect: ")[0] for line in ignored(config, **of_rows)]


@pytest.mark.parametrize("name", CASES)
def test_an_option_is_named_where_it_has_no_effect_and_only_there(name):
    value, without, acts = CASES[name]
    option, _, expert = name.partition(" ")
    shown = f"the expert {expert}" if expert else f"--{name.replace('_', '-')}"
    assert without_effect(**without | {option: value}) == [shown]
    assert without_effect(**acts | {option: value}) == without_effect(**without) == []


def test_estimators_warn_of_options_without_effect():
    stream = pytest.importorskip("foretrace.stream")
    with pytest.warns(UserWarning, match="^Forecaster: members has") as caught:
        stream.Forecaster(members=3)
    assert [warning.filename for warning in caught] == [__file__]
