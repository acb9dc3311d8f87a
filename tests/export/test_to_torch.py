"""The PyTorch file computes the same as the network."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import fast

import foretrace as ft

CELLS = {
    "lru": ft.LRU.factory(state_size=3),
    "s5": ft.S5.factory(state_size=3),
    "mingru": ft.MinGRU.factory(),
    "gru": ft.GRU.factory(),
}


def make_network(cell="lru", **options):
    return ft.Network(
        3, 2, model_size=4, depth=2, cell=CELLS[cell], key=jax.random.key(0), **options
    )


def imported(path):
    spec = importlib.util.spec_from_file_location("written", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Network()


@pytest.mark.parametrize(
    ("cell", "options"),
    fast(
        [
            ("lru", {}),
            ("s5", {"norm": "post"}),
            ("gru", {"readout_size": 5}),
            ("mingru", {"norm": "none", "glu": False}),
        ]
    ),
    ids=str,
)
def test_outputs_and_states_agree(cell, options, tmp_path):
    torch = pytest.importorskip("torch", reason="pip install torch")
    network = make_network(cell, **options)
    module = imported(ft.to_torch(network, tmp_path / "model.py").source)
    xs = jax.random.normal(jax.random.key(1), (40, 3))
    outputs, carry = ft.forward(network, None, xs)
    found = module(torch.tensor(np.asarray(xs)))
    np.testing.assert_allclose(found.detach(), outputs, atol=1e-12)
    state = module.start()
    for x in np.asarray(xs):
        y, state = module.step(state, torch.tensor(x))
    np.testing.assert_allclose(y.detach(), outputs[-1], atol=1e-12)
    np.testing.assert_allclose(torch.stack(state).detach(), carry.h, atol=1e-12)
    # Streams side by side, and a gradient for every parameter.
    batch = module(torch.tensor(np.asarray(jnp.stack([xs, -xs], 1))))
    np.testing.assert_allclose(batch[:, 0].detach(), outputs, atol=1e-12)
    batch.square().sum().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_the_file_is_valid_and_short_python(tmp_path):
    files = ft.to_torch(make_network("gru", readout_size=5), tmp_path / "model.py")
    text = files.source.read_text()
    compile(text, "model.py", "exec")
    assert len(text.splitlines()) < 90 and max(map(len, text.splitlines())) <= 120


@pytest.mark.full
def test_wrong_arguments_are_named(tmp_path):
    rtu = ft.Network(
        3, 2, model_size=4, depth=1, cell=ft.RTU.factory(state_size=3), key=jax.random.key(0)
    )
    with pytest.raises(ValueError, match="no form of RTU, only of LRU, S5, MinGRU, GRU"):
        ft.to_torch(rtu, tmp_path / "model.py")
    with pytest.raises(ValueError, match=r"must end in \.py"):
        ft.to_torch(make_network(), tmp_path / "model.pt")
    with pytest.raises(FileNotFoundError, match="make it first"):
        ft.to_torch(make_network(), tmp_path / "no" / "model.py")
    assert list(tmp_path.iterdir()) == []
