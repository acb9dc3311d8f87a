"""A file makes the same network again, or an error names its fault."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CELLS
from tiers import fast

import foretrace as ft

KEY = jax.random.key(0)
OPTIONS = {"glu": False, "norm": "post", "norm_eps": 1e-3, "dropout": 0.1, "readout_size": 6}


@pytest.mark.parametrize("name", fast(list(CELLS), 1))
def test_every_cell_comes_back(name, tmp_path):
    for options in ({}, OPTIONS):
        network = ft.Network(2, 3, model_size=4, depth=2, cell=CELLS[name], key=KEY, **options)
        ft.save_pretrained(network, tmp_path / "file")
        again = ft.from_pretrained(tmp_path / "file")
        assert jax.tree.structure(again) == jax.tree.structure(network)
        jax.tree.map(np.testing.assert_array_equal, again, network)


@pytest.mark.parametrize("make", [ft.SetReset, ft.Rotation])
def test_modules_of_two_outputs_come_back_in_a_network_of_an_odd_width(make, tmp_path):
    network = ft.Network(2, 3, model_size=5, depth=1, cell=make.factory(), key=KEY)
    ft.save_pretrained(network, tmp_path / "file")
    again = ft.from_pretrained(tmp_path / "file")
    assert again.blocks.cell.state_size == 3 and again.blocks.cell.output_size == 5
    assert jax.tree.structure(again) == jax.tree.structure(network)


def forge(path, change, arrays=None):
    """Write a file anew with another description, or with other arrays."""
    extra = ft.read_extra(path)
    change(extra)
    ft.save(path, ft.from_pretrained(path) if arrays is None else arrays, extra=extra)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    network = ft.Network(2, 3, model_size=4, depth=1, cell=ft.MinGRU.factory(), key=KEY)
    ft.save_pretrained(network, path)
    return path


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(cell="Evil"), "the cell 'Evil' is unknown"),
        (lambda c: c["network"].update(model_size=5), "puts out 4 features"),
        (
            lambda c: c["network"].update(depth=10**9),
            r"is float32\[1, 4\] in the file and float32\[1000000000, 4\]",
        ),
        (lambda c: c["options"].update(state_size=5), "puts out 5 features"),
        (lambda c: c["options"].update(state_size=10**12), "puts out"),
        (lambda c: c["options"].update(state_size=4.0), "state_size=4.0.* must be a whole number"),
        (lambda c: c["options"].update(input_size=3), "input_size"),
        (lambda c: c.update(network=[]), "does not write"),
        (lambda c: c["network"].update(depth="2"), "must be a whole number"),
        (lambda c: c["network"].update(key=1), "key"),
        (lambda c: c.pop("cell"), "'cell'"),
        (lambda c: c.update(dtype="int8"), "dtype='int8' must be one of float32, float64"),
        (lambda c: c["network"].update(glu=False), "lacks nothing and has blocks.glu"),
    ],
)
def test_a_changed_description_is_refused(file, change, message):
    forge(file, change)
    with pytest.raises(ft.CheckpointError, match=message):
        ft.from_pretrained(file)


@pytest.mark.parametrize(
    ("cell", "field"),
    [
        (ft.LRU.factory(state_size=3), "state_size"),
        (ft.SelectiveSSM.factory(states_per_channel=2), "states_per_channel"),
    ],
)
def test_a_wrong_size_of_a_cell_is_refused(tmp_path, cell, field):
    path = tmp_path / "file"
    network = ft.Network(2, 3, model_size=4, depth=1, cell=cell, key=KEY)
    ft.save_pretrained(network, path)
    for wrong in (0, -1, 5, 8, 10**30, "4", None, True):
        forge(path, lambda extra, wrong=wrong: extra["options"].update({field: wrong}), network)
        with pytest.raises(ft.CheckpointError):
            ft.from_pretrained(path)


def test_numbers_of_another_type_are_refused(file):
    network = ft.from_pretrained(file)

    def cast(dtype):
        return jax.tree.map(lambda leaf: np.asarray(leaf, dtype), network)

    for dtype in (np.float16, np.int32, np.float64):
        forge(file, dict, cast(dtype))
        with pytest.raises(ft.CheckpointError, match=f"is {np.dtype(dtype)}"):
            ft.from_pretrained(file)
    forge(file, lambda extra: extra.update(dtype="float64"), cast(np.float64))
    with pytest.raises(ft.CheckpointError, match="64-bit mode: set jax_enable_x64"):
        ft.from_pretrained(file)
    with jax.enable_x64(True):
        assert ft.from_pretrained(file).decoder.linear.bias.dtype == np.float64
        forge(file, lambda extra: extra.update(dtype="float32"), network)
        assert ft.from_pretrained(file).decoder.linear.bias.dtype == np.float32


def test_a_network_of_another_type_is_not_written(tmp_path):
    network = ft.Network(2, 3, model_size=4, depth=1, cell=ft.MinGRU.factory(), key=KEY)
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), network)
    with pytest.raises(TypeError, match="writes float32 or float64, not bfloat16"):
        ft.save_pretrained(half, tmp_path / "file")
    assert not (tmp_path / "file").exists()


def test_damaged_missing_and_foreign_files_are_named(file):
    ft.save(file.with_name("other"), ft.from_pretrained(file))
    with pytest.raises(ft.CheckpointError, match="does not write"):
        ft.from_pretrained(file.with_name("other"))
    file.write_bytes(b"nothing")
    with pytest.raises(ft.CheckpointError, match="not a complete"):
        ft.from_pretrained(file)
    file.unlink()
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        ft.from_pretrained(file)


def test_a_cell_of_the_users_own_is_refused(tmp_path):
    class Own(ft.MinGRU):
        pass

    network = ft.Network(2, 3, model_size=4, depth=1, cell=Own.factory(), key=KEY)
    with pytest.raises(TypeError, match="Own is none"):
        ft.save_pretrained(network, tmp_path / "file")
    with pytest.raises(TypeError, match="must be a foretrace.Network"):
        ft.save_pretrained(jnp.ones(3), tmp_path / "file")
    assert not (tmp_path / "file").exists()
