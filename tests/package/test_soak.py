"""A run on a stream that is killed and resumed at random, against one that is left alone."""

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["one network", "members"])
def test_a_disturbed_run_is_the_undisturbed_one_bit_for_bit(kind, tmp_path, benchmark):
    soak = benchmark("streams.soak")
    found = soak.soak(
        tmp_path, kind=kind, rows=6000, kills=4, stops=1, chunk=4, size="tiny", seed=1
    )
    assert found["same"], found["differs"]
    if kind == "members":
        assert all(found["members"][what] > 0 for what in ("joins", "evictions", "resets"))
    assert (
        found["bad_rows"] > 0
        and found["counts"]["infinite"] > 0
        and found["counts"]["missing targets"] > 0
    )
    (tmp_path / "alone" / "metrics.jsonl").write_text("")
    assert soak.differences(tmp_path / "alone", tmp_path / "disturbed") == ["metrics.jsonl"]
