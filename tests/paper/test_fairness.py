"""The reproduction's context of each number: guessing, test data, search, tree."""

import dataclasses
import math

import pytest

from foretrace.paper import load
from foretrace.paper._fairness import (
    about_test_data,
    beats_guessing,
    gradient_mode,
    modified,
    searches,
)
from foretrace.paper._tables import Cell, markdown, verdict


def entry_of(experiment, name):
    return next(entry for entry in experiment.entries if entry.name == name)


def verdict_on(experiment, name, value):
    return verdict(experiment, Cell(entry_of(experiment, name), [value], [], []))


def test_a_number_near_guessing_agrees_with_nothing():
    table1 = load("table1", "paper")
    # Within a factor of two of .262.
    assert verdict_on(table1, "truncated, LRU x 4", 0.384) == "order only"
    assert verdict_on(table1, "truncated, LRU x 4", 0.30) == "agrees"
    assert verdict_on(table1, "online, LRU x 4", 0.0127) == "agrees"
    table2 = load("table2", "paper")
    assert verdict_on(table2, "online, ListOps", 0.3762) == "order only"
    assert verdict_on(table2, "online, sCIFAR", 0.80) == "agrees"


@pytest.mark.parametrize(
    "name", ["table1", "table2", "table3", "figure2ab", "figure2cd", "figure2ef"]
)
def test_guessing_is_known_for_every_task(name):
    experiment = load(name, "paper")
    for entry in experiment.entries:
        perfect = 1.0 if experiment.metric == "accuracy" else 0.0
        assert beats_guessing(experiment, entry.config.task, perfect)
        guessed = 0.2 if experiment.metric == "accuracy" else math.log(2)
        assert not beats_guessing(experiment, entry.config.task, guessed)


def test_how_a_gradient_was_computed():
    config = entry_of(load("table1", "paper"), "online, LRU x 4").config
    assert gradient_mode(config) == "whole sequences"
    assert gradient_mode(dataclasses.replace(config, chunk=8)) == "streamed in chunks of 8"


def test_parts_of_test_data_have_a_standard_error():
    table2 = load("table2", "cpu")
    said = about_test_data(table2, table2.entries)
    assert "sCIFAR 2,000 of 10,000 (at most 1.1 points)" in said
    assert "IMDB 10,000 of 25,000 (at most 0.5 points)" in said
    assert "ListOps all 2,000" in said
    assert about_test_data(load("table1", "cpu"), load("table1", "cpu").entries) == ""


def record(entry, purpose, rate, step, commit):
    return {
        "kind": "run",
        "step": step,
        "experiment": "table1",
        "scale": "paper",
        "entry": entry.name,
        "purpose": purpose,
        "seed": 0,
        "rate": rate,
        "training_loss": 0.01,
        "validation": {"loss": rate},
        "test": {"loss": 0.01, "accuracy": 1.0},
        "seconds": 1.0,
        "runs_in_program": 1,
        "surroundings": {"commit": commit, "cores": 2, "devices": "cpu"},
    }


def test_the_search_and_modified_trees_are_named():
    entry = entry_of(load("table1", "paper"), "online, LRU x 4")
    searched = [record(entry, "search", rate, 400, "abc") for rate in (0.004, 0.001)]
    expected = "among 0.001, 0.004 by runs of 400 of 10,000 steps with one seed"
    assert expected in searches([(entry, searched)])
    assert searches([(entry, [])]) == ""
    reported = [
        record(entry, "report", 0.001, 10_000, "0123456789"),
        record(entry, "report", 0.001, 1, "ab-dirty"),
    ]
    assert list(map(modified, reported)) == [False, True]
    page = markdown([*searched, *reported])
    assert expected in page
    assert "whole sequences, 1 of 2 from a modified tree" in page
    assert "| ab-dirty" in page.replace("ab-dirty, modified", "ab-dirty") and "| 01234567 |" in page
