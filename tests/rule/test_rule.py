"""Rules as text: every rule comes back from its text, and what is no rule is refused."""

import dataclasses
import re
from functools import partial

import pytest
from gradients import LOSS, XS, YS
from hypothesis import given
from hypothesis import strategies as st

import foretrace as ft
from foretrace import experiment
from foretrace._rule import RULES, Depth, as_rule, rule_text
from foretrace._runs.config_json import from_json, to_json
from foretrace.paper._records import identity

DEPTHS = st.builds(
    lambda rule, credit: dataclasses.replace(rule, credit=credit),
    st.sampled_from([ft.ONLINE, ft.RTRL, ft.HYBRID]),
    st.builds(Depth, st.integers(1, 9), st.integers(0, 9), st.integers(1, 99), st.booleans())
    | st.builds(Depth, st.integers(1, 9), st.integers(0, 9)),
)
ANY = st.sampled_from(list(RULES.values())) | DEPTHS
CONFIG = experiment.Config(
    task=experiment.Copy(pattern_length=3, padding=1, bits=2), rule="online(depth=1)", chunk=4
)
CHANGED = partial(dataclasses.replace, CONFIG)
CREDIT = ft.ONLINE.with_depth(1)


@given(ANY, st.booleans())
def test_a_rule_comes_back_from_its_text(rule, spaced):
    text = str(rule).replace("(", " ( ").replace("=", " = ") if spaced else str(rule).lower()
    assert ft.rule(text) == rule == as_rule(rule) and rule_text(text) == rule_text(str(rule))
    config = CHANGED(rule=text)
    assert config.rule == str(rule).lower()
    assert from_json(experiment.Config, to_json(config)) == config


def test_a_rule_is_known_wherever_one_is_given():
    assert ft.rule(" Online ") is ft.ONLINE == ft.ONLINE.with_depth(0)
    assert ft.ONLINE.with_depth(2).with_depth(1) == ft.ONLINE.with_depth(1)
    rule = dataclasses.replace(ft.ONLINE, credit=Depth(2, groups=1))
    text = "online(depth=2, groups=1)"
    assert ft.rule(text) == rule
    of = partial(identity, "table1", "cpu", "an entry", "report")
    assert of(CHANGED(rule=text)) != of(CONFIG)


TEXTS = {
    "": "is unknown; choose one of BPTT",
    "online(depth=2": "is unknown; choose one of BPTT",
    "online()": "'' is not an option of ONLINE; write each once, as depth=2, among depth, groups",
    "online(depth=-1)": "'depth=-1' is not an option",
    "online(depth=1, depth=2)": "'depth=2' is not an option of ONLINE; write each once",
    "bptt(depth=2)": "use it with ONLINE",
    "online(groups=2)": "groups=2 is a part of credit in depth, which needs a depth",
    "online(depth=2, by_memory=True)": "set modules",
    "online(depth=2, modules=true)": "'modules=true' is not an option",
}
CALLS = [
    *((partial(ft.ONLINE.with_depth, depth), f"depth={depth!r}") for depth in (-1, 1.0, True, "1")),
    *(
        (partial(rule.with_depth, 1), "carries none")
        for rule in (ft.RESERVOIR, ft.SPATIAL, ft.TRUNCATED, ft.BPTT)
    ),
    (partial(ft.LearningRule, "mine", recurrent=True, carried=True), "carried=True needs own=True"),
    (
        lambda: experiment.build(CHANGED(rule="online(depth=1, modules=3)", chunk=None)),
        "modules are for runs in chunks",
    ),
    (
        lambda: ft.testing.gradient_by_definition(None, XS, YS, rule=CREDIT, loss=LOSS),
        "depth",
    ),
]
OTHERS = [
    *((f.name, (0.5, 0, 1, 1.0, None, "True")) for f in dataclasses.fields(ft.LearningRule)[1:7]),
    ("name", (None, 3, b"mine", True)),
    ("credit", (0, 1, True, "depth=1", Depth, ft.ONLINE)),
]
"""Fields, and values of another kind."""
REFUSALS = [
    *((partial(ft.rule, text), words) for text, words in TEXTS.items()),
    *CALLS,
    *(
        (partial(dataclasses.replace, ft.ONLINE, **{field: value}), f"{field}={value!r}) must be")
        for field, values in OTHERS
        for value in values
    ),
]


@pytest.mark.parametrize(("call", "words"), REFUSALS)
def test_the_fault_is_named(call, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        call()
