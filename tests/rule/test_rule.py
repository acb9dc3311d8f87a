"""Rules as text: every rule of the package comes back from its text, and another text is refused."""

import jax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import foretrace as ft
from foretrace._rule import RULES, as_rule

DEPTHS = st.builds(
    lambda rule, depth, groups, modules, by_memory: (
        rule.with_depth(depth).with_groups(groups).with_modules(modules, by_memory=by_memory and modules > 0)
    ),
    st.sampled_from([ft.ONLINE, ft.RTRL, ft.HYBRID]),
    st.integers(1, 9),
    st.integers(0, 9),
    st.integers(0, 99),
    st.booleans(),
)
ANY = st.sampled_from(list(RULES.values())) | DEPTHS | st.integers(1, 20).map(ft.UORO.with_sketches)


@given(ANY, st.booleans())
def test_a_rule_comes_back_from_its_text(rule, spaced):
    text = str(rule).replace("(", " ( ").replace("=", " = ") if spaced else str(rule).lower().replace("true", "True")
    assert ft.rule(text) == rule == as_rule(rule)


def test_a_text_is_a_rule_wherever_one_is_given():
    network = ft.Network(2, 3, model_size=4, depth=2, cell=ft.MinGRU.factory(), key=jax.random.key(0))
    rule = ft.ONLINE.with_depth(2).with_groups(1)
    assert ft.carry_size(network, "online(depth=2, groups=1)") == ft.carry_size(network, rule)
    assert ft.rule(" Online ") is ft.ONLINE


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "is unknown; choose one of BPTT"),
        ("onlin(depth=2)", "is unknown; choose one of BPTT"),
        ("online(depth=2", "is unknown; choose one of BPTT"),
        ("online()", "'' is not an option of ONLINE; write each once, as depth=2, among depth, groups"),
        ("online(2)", "'2' is not an option of ONLINE"),
        ("online(depth=-1)", "'depth=-1' is not an option"),
        ("online(depth=1, depth=2)", "'depth=2' is not an option of ONLINE; write each once"),
        ("online(columns=2)", "'columns=2' is not an option"),
        ("uoro(depth=2)", "'depth=2' is not an option of UORO; write each once, as sketches=2, among sketches"),
        ("bptt(depth=2)", "use it with ONLINE"),
        ("online(groups=2)", "needs a depth of at least 1"),
        ("online(depth=2, by_memory=True)", "set modules"),
        ("uoro(sketches=0)", "there is at least one"),
    ],
)
def test_another_text_is_refused(text, match):
    with pytest.raises(ValueError, match=match):
        ft.rule(text)
