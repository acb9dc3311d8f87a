"""Rules as text: every rule comes back from its text, and other texts are refused."""

import dataclasses

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foretrace as ft
from foretrace._rule import RULES, Depth, as_rule, rule_text

DEPTHS = st.builds(
    lambda rule, credit: dataclasses.replace(rule, credit=credit),
    st.sampled_from([ft.ONLINE, ft.RTRL, ft.HYBRID]),
    st.builds(Depth, st.integers(1, 9), st.integers(0, 9), st.integers(1, 99), st.booleans())
    | st.builds(Depth, st.integers(1, 9), st.integers(0, 9)),
)
ANY = st.sampled_from(list(RULES.values())) | DEPTHS


@given(ANY, st.booleans())
def test_a_rule_comes_back_from_its_text(rule, spaced):
    text = str(rule).replace("(", " ( ").replace("=", " = ") if spaced else str(rule).lower()
    assert ft.rule(text) == rule == as_rule(rule) and rule_text(text) == rule_text(str(rule))


def test_a_text_is_a_rule_wherever_one_is_given():
    network = ft.Network(
        2, 3, model_size=4, depth=2, cell=ft.MinGRU.factory(), key=jax.random.key(0)
    )
    rule = dataclasses.replace(ft.ONLINE, credit=Depth(2, groups=1))
    assert ft.carry_size(network, "online(depth=2, groups=1)") == ft.carry_size(network, rule)
    assert ft.rule(" Online ") is ft.ONLINE


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "is unknown; choose one of BPTT"),
        ("onlin(depth=2)", "is unknown; choose one of BPTT"),
        ("online(depth=2", "is unknown; choose one of BPTT"),
        (
            "online()",
            "'' is not an option of ONLINE; write each once, as depth=2, among depth, groups",
        ),
        ("online(2)", "'2' is not an option of ONLINE"),
        ("online(depth=-1)", "'depth=-1' is not an option"),
        ("online(depth=1, depth=2)", "'depth=2' is not an option of ONLINE; write each once"),
        ("online(columns=2)", "'columns=2' is not an option"),
        ("online(sketches=2)", "'sketches=2' is not an option of ONLINE"),
        ("bptt(depth=2)", "use it with ONLINE"),
        ("online(groups=2)", "groups=2 is a part of credit in depth"),
        ("online(depth=2, by_memory=True)", "set modules"),
        ("online(depth=2, modules=true)", "modules=True must be an integer"),
    ],
)
def test_another_text_is_refused(text, match):
    with pytest.raises(ValueError, match=match):
        ft.rule(text)


@pytest.mark.parametrize(
    ("field", "values"),
    [
        *(
            (f.name, (0.5, 0, 1, 1.0, None, "True"))
            for f in dataclasses.fields(ft.LearningRule)[1:7]
        ),
        ("name", (None, 3, b"mine", True)),
        ("credit", (0, 1, True, "depth=1", Depth, ft.ONLINE)),
    ],
)
def test_a_field_of_another_kind_is_refused(field, values):
    for value in values:
        with pytest.raises(ValueError, match=rf"LearningRule\({field}=.*\) must be"):
            dataclasses.replace(ft.ONLINE, **{field: value})
        with pytest.raises(ValueError, match=rf"LearningRule\({field}=.*\) must be"):
            ft.LearningRule(**{"name": "mine", "recurrent": True, "own": True} | {field: value})
