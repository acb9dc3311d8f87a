"""The PyTorch file computes the same as the network."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CELLS
from tiers import fast

import foretrace as ft


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
@pytest.mark.parametrize(
    ("cell", "path", "error", "message"),
    [
        ("rtu", "model.py", ValueError, "no form of RTU, only of LRU, S5, MinGRU, GRU"),
        ("lru", "model.pt", ValueError, r"must end in \.py"),
        ("lru", "no/model.py", FileNotFoundError, "make it first"),
    ],
)
def test_it_is_refused_before_a_file_is_written(cell, path, error, message, tmp_path):
    with pytest.raises(error, match=message):
        ft.to_torch(make_network(cell), tmp_path / path)
    assert list(tmp_path.iterdir()) == []
