"""Warnings about the scores of a stream: each is said once, also after a checkpoint."""

import json

import pytest

from foretrace._learner.forgetting import BLOCK, HELD
from foretrace.stream.runs.monitors import LABELS, Monitors

pytestmark = [pytest.mark.exact, pytest.mark.usefixtures("standard_promotion")]


def restored(monitors, *options):
    """Return monitors that were saved and restored."""
    again = Monitors(*options)
    again.restore(json.loads(json.dumps(monitors.to_json())))
    return again


def sums(rows, loss, **more):
    """Return sums of scores after rows of one log loss, or of one error beside the last value's."""
    of_each = {"rows": 1.0, "squared": loss**2, "mae" if more else "log_loss": loss} | more
    return {name: rows * value for name, value in of_each.items()}


BLOCKS = {
    "log loss was 0.6 ": (sums(BLOCK, 0.2), sums(BLOCK, 0.6)),
    "was 1.8 ": tuple(sums(BLOCK, loss, no_change_mae=10.0, coverage=0.9) for loss in (9.0, 18.0)),
}


@pytest.mark.parametrize("words", BLOCKS)
def test_a_level_of_the_scores_that_was_lost_is_told_once_and_survives_a_checkpoint(words):
    def look(monitors, block):
        """See blocks of rows with a level; return what was told."""
        assert all(monitors.look(block) for _ in range(HELD))
        return monitors.warnings()

    monitors, (held, lost) = Monitors(), BLOCKS[words]
    assert not look(monitors, held)
    (line,) = look(again := restored(monitors), lost)
    assert "lost" in line and words in line and not look(again, lost)


def test_a_coverage_that_is_clearly_too_small_is_said_once():
    def look(monitors, labels, coverage):
        """See a block; return whether it ends, the recent coverage, and what is told."""
        ends = monitors.look(sums(labels, 1.0, no_change_mae=1.0, coverage=coverage))
        recent = monitors.recent
        return ends, recent, monitors.warnings()

    monitors = Monitors(0.9)
    assert look(monitors, LABELS - 1, 0.9) == (False, {}, [])
    recent = {"recent_coverage": 0.9, "recent_labels": LABELS}
    assert look(monitors, LABELS, 0.9) == (True, recent, [])
    recent = {"recent_coverage": 0.765, "recent_labels": 1500}
    words = ["recent_coverage is 0.765, clearly less than asked for: intervals hold too few labels"]
    for one in (restored(monitors, 0.9), monitors):
        assert look(one, LABELS // 2, 0.495) == (False, recent, words)
        assert not one.warnings()
    # Around exact predictions, intervals hold every label: no fault.
    assert look(Monitors(0.5), LABELS, 1.0)[2] == []
