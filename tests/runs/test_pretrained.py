"""A folder makes the same network again, and says what is wrong with it."""

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


@pytest.fixture
def folder(tmp_path):
    ft.save_pretrained(ft.Network(2, 3, model_size=4, depth=1, cell=ft.MinGRU.factory(), key=KEY), tmp_path)
    return tmp_path


@pytest.mark.usefixtures("without_shape_checks")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.update(format=2), "not of format 1"),
        (lambda c: c["cell"].update(type="Evil"), "the cell 'Evil' is unknown"),
        (lambda c: c["network"].update(model_size=5), "expected real numbers of"),
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


def test_damaged_and_missing_files_are_named(folder):
    arrays = load_file(folder / "model.safetensors")
    save_file(arrays | {"blocks.cell.W": arrays["blocks.cell.W"][:, :2]}, folder / "model.safetensors")
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
