"""The cells and the rules that the laws are tested for: a new one is one line here."""

from typing import NamedTuple

import pytest

import foretrace as ft


def rtu_and_gru(size, *, key):
    """Return two cells side by side, with as many modules as features."""
    return ft.Beside.factory(ft.RTU.factory(state_size=size), ft.GRU.factory())(size, key=key)


CELLS = {
    "lru": ft.LRU.factory(state_size=3),
    "gru": ft.GRU.factory(),
    "lstm": ft.ElementwiseLSTM.factory(),
    "linear": ft.LinearRNN.factory(state_size=3),
    "tanh": ft.LinearRNN.factory(state_size=3, tanh=True),
    "mingru": ft.MinGRU.factory(),
    "minlstm": ft.MinLSTM.factory(),
    "rglru": ft.RGLRU.factory(),
    "s5": ft.S5.factory(state_size=3),
    "selective": ft.SelectiveSSM.factory(states_per_channel=2),
    "rtu": ft.RTU.factory(state_size=3),
    "indrnn": ft.IndRNN.factory(),
    "lif": ft.LIF.factory(),
    "setreset": ft.SetReset.factory(),
    "latch": ft.SetReset.factory(products=False),
    "rotation": ft.Rotation.factory(),
    "rtu+gru": rtu_and_gru,
}


class Case(NamedTuple):
    """A rule, the cells that it is tested with, and which of the optional laws it obeys."""

    rule: ft.LearningRule
    fast: tuple[str, ...] = ("lru",)
    full: tuple[str, ...] = ("gru", "tanh", "lstm")
    any_chunks: bool = True
    """The gradient does not depend on how a sequence is cut into chunks."""
    segments: bool = True
    """A whole sequence can be run in segments."""


RULES = (
    Case(ft.RESERVOIR, fast=(), full=("lru", "gru")),
    Case(ft.SPATIAL, fast=(), full=("lru", "gru")),
    Case(ft.TRUNCATED, fast=(), full=("lru", "gru")),
    Case(ft.SNAP1),
    Case(ft.RTRL, fast=("tanh",), full=("lru", "gru", "lstm")),
    Case(ft.HYBRID, any_chunks=False),
    Case(ft.BPTT, any_chunks=False),
    Case(ft.ONLINE.with_depth(1), full=("lstm",), segments=False),
    Case(ft.RTRL.with_depth(2), fast=(), full=("gru",), segments=False),
    Case(ft.rule("online(depth=2, groups=1)"), fast=(), full=("lru", "lstm"), segments=False),
)


def _is_kind_of_its_own(cell, rule):
    """Return whether a pair adds to the others; pairs that do not are in the slow tier."""
    if rule == ft.RTRL.with_depth(2):
        return False  # a minute a law; `test_depth.py` has RTRL in depth by its definition
    return cell in ("lru", "gru") or rule == ft.SNAP1 or (cell, rule) == ("tanh", ft.RTRL)


def every_case(obeys=lambda case: True, slow=()):
    """Parametrise a law by cell and rule, for rules that obey it; `slow` is in the full tier."""
    cases = []
    for case in filter(obeys, RULES):
        for cell in (*case.fast, *case.full):
            quick = cell in case.fast and case.rule not in slow
            marks = (
                ()
                if quick
                else pytest.mark.full
                if _is_kind_of_its_own(cell, case.rule)
                else pytest.mark.slow
            )
            cases.append(pytest.param(cell, case.rule, id=f"{cell}-{case.rule}", marks=marks))
    return pytest.mark.parametrize(("cell_name", "rule"), cases, indirect=["cell_name"])
