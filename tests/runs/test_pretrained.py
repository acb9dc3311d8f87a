"""A folder makes the same network again, or an error names its fault."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CELLS
from safetensors.numpy import load_file, save_file
from tiers import fast

import foretrace as ft

KEY = jax.random.key(0)
OPTIONS = {"glu": False, "norm": "post", "norm_eps": 1e-3, "dropout": 0.1, "readout_size": 6}


@pytest.mark.parametrize("name", fast(list(CELLS), 1))
def test_every_cell_comes_back(name, tmp_path):
    for options in ({}, OPTIONS):
        network = ft.Network(2, 3, model_size=4, depth=2, cell=CELLS[name], key=KEY, **options)
        ft.save_pretrained(network, tmp_path / "folder")
        again = ft.from_pretrained(tmp_path / "folder")
        assert jax.tree.structure(again) == jax.tree.structure(network)
        jax.tree.map(np.testing.assert_array_equal, again, network)


@pytest.mark.parametrize("make", [ft.SetReset, ft.Rotation])
def test_modules_of_two_outputs_come_back_in_a_network_of_an_odd_width(make, tmp_path):
    network = ft.Network(2, 3, model_size=5, depth=1, cell=make.factory(), key=KEY)
    ft.save_pretrained(network, tmp_path)
    again = ft.from_pretrained(tmp_path)
    assert again.blocks.cell.state_size == 3 and again.blocks.cell.output_size == 5
    assert jax.tree.structure(again) == jax.tree.structure(network)


@pytest.fixture
def folder(tmp_path):
    ft.save_pretrained(
        ft.Network(2, 3, model_size=4, depth=1, cell=ft.MinGRU.factory(), key=KEY), tmp_path
    )
    return tmp_path


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(format=2), "not of format 1"),
        (lambda c: c["cell"].update(type="Evil"), "the cell 'Evil' is unknown"),
        (lambda c: c["network"].update(model_size=5), "puts out 4 features"),
        (
            lambda c: c["network"].update(depth=10**9),
            r"is float32\[1, 4\], expected float32\[1000000000, 4\]",
        ),
        (lambda c: c["cell"].update(state_size=5), "puts out 5 features"),
        (lambda c: c["cell"].update(state_size=10**12), "puts out"),
        (lambda c: c["cell"].update(state_size=4.0), "state_size=4.0.* must be a whole number"),
        (
            lambda c: c["cell"].update(input_size=3),
            "cell.input_size=3 does not fit the network, which needs 4",
        ),
        (lambda c: c["cell"].pop("input_size"), "input_size"),
        (lambda c: c.update(network=[]), "do not make a network"),
        (lambda c: c["network"].update(depth="2"), "must be a whole number"),
        (lambda c: c["network"].update(key=1), "key"),
        (lambda c: c.pop("cell"), "'cell'"),
        (lambda c: c["network"].update(glu=False), "the parameters differ: blocks.glu"),
    ],
)
def test_a_changed_configuration_is_refused(folder, change, message):
    config = json.loads((folder / "config.json").read_text())
    change(config)
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ft.CheckpointError, match=message):
        ft.from_pretrained(folder)


@pytest.mark.parametrize("name", ["lru", "selective"])
@pytest.mark.parametrize("field", ["state_size", "input_size"])
def test_a_wrong_size_of_a_cell_is_refused(tmp_path, name, field):
    cell = {
        "lru": ft.LRU.factory(state_size=3),
        "selective": ft.SelectiveSSM.factory(states_per_channel=2),
    }[name]
    ft.save_pretrained(ft.Network(2, 3, model_size=4, depth=1, cell=cell, key=KEY), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for wrong in (0, -1, 5, 8, 10**30, "4", None, True):
        if wrong != config["cell"][field]:
            other = config | {"cell": config["cell"] | {field: wrong}}
            (tmp_path / "config.json").write_text(json.dumps(other))
            with pytest.raises(ft.CheckpointError, match="do not make a network"):
                ft.from_pretrained(tmp_path)


def test_numbers_of_another_type_are_refused(folder):
    arrays = load_file(folder / "model.safetensors")
    for dtype in (np.float16, np.int32):
        save_file(
            {name: array.astype(dtype) for name, array in arrays.items()},
            folder / "model.safetensors",
        )
        with pytest.raises(
            ft.CheckpointError, match=f"the parameters are {np.dtype(dtype)}, expected float32"
        ):
            ft.from_pretrained(folder)
    arrays = {name: array.astype(np.float64) for name, array in arrays.items()}
    save_file(arrays, folder / "model.safetensors")
    with pytest.raises(ft.CheckpointError, match=r"are float64; set jax_enable_x64"):
        ft.from_pretrained(folder)
    with jax.enable_x64(True):
        assert ft.from_pretrained(folder).decoder.linear.bias.dtype == np.float64
    mixed = arrays | {"decoder.linear.bias": arrays["decoder.linear.bias"].astype(np.float32)}
    save_file(mixed, folder / "model.safetensors")
    with (
        jax.enable_x64(True),
        pytest.raises(
            ft.CheckpointError, match=r"decoder.linear.bias is float32\[3\], expected float64\[3\]"
        ),
    ):
        ft.from_pretrained(folder)


def test_a_network_of_another_type_is_not_written(tmp_path):
    network = ft.Network(2, 3, model_size=4, depth=1, cell=ft.MinGRU.factory(), key=KEY)
    half = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), network)
    with pytest.raises(TypeError, match="writes float32 or float64, not bfloat16"):
        ft.save_pretrained(half, tmp_path / "folder")
    assert not (tmp_path / "folder").exists()


def test_damaged_and_missing_files_are_named(folder):
    arrays = load_file(folder / "model.safetensors")
    save_file(
        arrays | {"blocks.cell.W": arrays["blocks.cell.W"][:, :2]}, folder / "model.safetensors"
    )
    with pytest.raises(ft.CheckpointError, match="do not make a network"):
        ft.from_pretrained(folder)
    (folder / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ft.CheckpointError, match="cannot be read"):
        ft.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="no model.safetensors"):
        ft.from_pretrained(folder)


def test_a_cell_of_the_users_own_is_refused(tmp_path):
    class Own(ft.MinGRU):
        pass

    network = ft.Network(2, 3, model_size=4, depth=1, cell=Own.factory(), key=KEY)
    with pytest.raises(TypeError, match="Own is none"):
        ft.save_pretrained(network, tmp_path / "folder")
    with pytest.raises(TypeError, match="must be a foretrace.Network"):
        ft.save_pretrained(jnp.ones(3), tmp_path / "folder")
    assert not (tmp_path / "folder").exists()
