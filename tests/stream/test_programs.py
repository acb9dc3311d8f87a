"""A kept program gives the results of its function, and no other file is used in its place."""

import warnings

import jax
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache
from test_own_experts import Sums

from foretrace._learner.packing import Packed
from foretrace._runs import programs
from foretrace.stream.experts.shape import Shape
from foretrace.stream.model.mixture import Mixture
from foretrace.stream.model.state import Mixed

X = np.linspace(-1, 1, 7)


@pytest.fixture
def folder(tmp_path):
    """Return the folder of compiled programs."""
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    compilation_cache.reset_cache()
    yield tmp_path
    jax.config.update("jax_compilation_cache_dir", before)
    compilation_cache.reset_cache()


def ran(of="a", name="turn"):
    """Return the results of a new program, and how often its function was traced."""
    traced = []

    def turn(state, x):
        traced.append(x)
        return Packed((), (state.small[0] + jax.numpy.sin(x),)), Mixed(x[None] / 3)

    with jax.enable_x64(True):
        state = Packed((), (jax.device_put(X.copy()),))
    program = programs.program(name, turn, of, changes=True, wide=True)
    after, _ = program(state, X)
    assert state.small[0].is_deleted()  # its memory is the result's
    after, mixed = program(after, X)
    assert program.__wrapped__._cache_size() == 1  # compiled once for both states
    return [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves((after, mixed))], len(traced)


def kept(folder):
    return sorted(folder.glob("foretrace-*"))


def test_a_later_process_traces_nothing_and_computes_the_same(folder, monkeypatch):
    plain, first = ran(of=None), ran()
    (file,) = kept(folder)
    assert plain == first == (first[0], 1) and ran() == (first[0], 0)
    monkeypatch.setattr(programs, "_versions", lambda: "another version")
    assert ran() == ran(of="b") == ran(name="other") == first
    with jax.default_matmul_precision("highest"):
        assert ran() == first
    assert len(kept(folder)) == 5 and file in kept(folder)


def test_a_damaged_file_is_told_once_and_made_anew(folder):
    expected = ran()
    (file,) = kept(folder)
    whole = file.read_bytes()
    other = file.with_name(file.name + "0")
    for damaged in (b"", whole[:-1], whole[:99] + bytes([whole[99] ^ 1]) + whole[100:]):
        file.write_bytes(damaged)
        with pytest.warns(match="is damaged .*; it is removed and made anew"):
            assert ran() == expected
        assert file.read_bytes() == whole
    other.write_bytes(whole)  # a program under the name of another one
    with pytest.warns(match="its digest does not fit"):
        assert programs._read(other) is None
    with warnings.catch_warnings(action="error"):
        assert not other.exists() and ran() == (expected[0], 0)


def test_experts_of_a_users_own_and_programs_without_a_folder_are_not_kept(folder):
    jax.config.update("jax_compilation_cache_dir", None)
    assert ran() == ran() and not kept(folder)
    jax.config.update("jax_compilation_cache_dir", str(folder))
    for own, count in (((("sums", Sums),), 0), ((), 1)):
        model = Mixture(Shape(2, (0,), 1), ("row",), own=own)
        model.report(model.packing.pack(model.init()))
        assert len(kept(folder)) == count
