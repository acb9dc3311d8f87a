"""The PyTorch file computes the same as the network."""

import importlib.util

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gradients import make_network
from tiers import fast

import foretrace as ft


def imported(path):
    spec = importlib.util.spec_from_file_location("written", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Network()


@pytest.mark.exact
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
def test_outputs_states_and_gradients_agree(cell, options, tmp_path):
    network = make_network(cell, **options)
    source = ft.to_torch(network, tmp_path / "model.py").source
    compile(source.read_text(), "model.py", "exec")
    torch, module = pytest.importorskip("torch", reason="pip install torch"), imported(source)
    xs = jax.random.normal(jax.random.key(1), (40, 2))
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
