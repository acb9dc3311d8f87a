"""`forward` is compiled and checked as `gradient`; means over steps, targets of sequences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import foretrace as ft
from foretrace._engine.data import Data
from foretrace._engine.forward import _jitted_run
from foretrace._engine.gradient import jitted_evaluate

KEY = jax.random.key(0)
LOSS = ft.losses.softmax_cross_entropy
XS = jax.random.normal(KEY, (3, 6, 2))
YS = jax.random.randint(KEY, (3, 6), 0, 3)

pytestmark = pytest.mark.usefixtures("default_promotion")


@pytest.fixture(scope="module")
def network():
    return ft.Network(2, 3, model_size=4, depth=2, cell=ft.MinGRU.factory(), key=KEY)


def test_a_second_call_compiles_nothing(network):
    outputs, carry = ft.forward(network, None, XS[0, :3])
    programs = _jitted_run._cache_size()
    ft.forward(network, None, XS[1, :3])
    assert _jitted_run._cache_size() == programs
    later, _ = ft.forward(network, carry, XS[0, 3:], rule="bptt")
    np.testing.assert_allclose(
        jnp.concatenate([outputs, later]), ft.forward(network, None, XS[0])[0], rtol=1e-12
    )


def test_the_carry_of_a_rule_goes_in_and_out_by_its_name(network):
    carry = ft.init_carry(network, ft.ONLINE)
    outputs, after = ft.forward(network, carry, XS[0], rule="online")
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, carry)
    data = Data(XS[0], YS[0])
    *_, expected, seen = jitted_evaluate(network, carry, data, rule=ft.ONLINE, loss=LOSS)
    np.testing.assert_allclose(outputs, seen, rtol=1e-12)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-14), after, expected
    )
    with pytest.raises(ValueError, match=r"carry does not fit: expected init_carry\(network, BPTT"):
        ft.forward(network, carry, XS[0])


def test_a_mean_loss_is_the_mean_over_the_steps_that_count(network):
    mask = jnp.arange(6)[None] < jnp.array([6, 2, 4])[:, None]
    weights = mask / mask.sum(1, keepdims=True)
    want = ft.gradient(network, None, XS, YS, rule=ft.BPTT, loss=LOSS, mask=weights)
    got = ft.gradient(network, None, XS, YS, rule=ft.BPTT, loss=LOSS, mask=mask, mean_loss=True)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15), got[:2], want[:2]
    )
    nothing, grads, _ = ft.gradient(
        network, None, XS, YS, rule=ft.BPTT, loss=LOSS, mask=jnp.zeros((3, 6), bool), mean_loss=True
    )
    assert nothing == 0 and all((leaf == 0).all() for leaf in jax.tree.leaves(grads))


@pytest.mark.parametrize("streams", [None, 3])
def test_one_target_for_a_sequence_is_compared_with_its_last_step_that_counts(network, streams):
    there = jnp.arange(6)[None] < jnp.array([6, 2, 4])[:, None]
    final = jnp.arange(6)[None] == jnp.array([5, 1, 3])[:, None]
    part = 1 if streams is None else slice(None)
    rule, labels = {"rule": ft.BPTT, "loss": LOSS}, YS[:, 0]
    want = ft.gradient(
        network, None, XS[part], jnp.repeat(labels[:, None], 6, 1)[part], mask=final[part], **rule
    )
    got = ft.gradient(network, None, XS[part], labels[part], mask=there[part], last=True, **rule)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-15), got[:2], want[:2]
    )


@pytest.mark.full
def test_a_learner_takes_means_and_targets_of_sequences(network):
    options = {"rule": ft.BPTT, "optimizer": ft.adamw(1e-2), "loss": LOSS, "whole_sequences": True}
    learner = ft.Learner(network, mean_loss=True, **options)
    mask = jnp.arange(6)[None] < jnp.array([6, 2, 4])[:, None]
    _, info = learner.step(learner.init(), XS, YS, mask=mask)
    want = ft.gradient(network, None, XS, YS, rule=ft.BPTT, loss=LOSS, mask=mask, mean_loss=True)[0]
    np.testing.assert_allclose(info.loss, want, rtol=1e-12)
    _, info = learner.step(learner.init(), XS, YS[:, 0], mask=mask, last=True)
    want = ft.gradient(network, None, XS, YS[:, 0], rule=ft.BPTT, loss=LOSS, mask=mask, last=True)[
        0
    ]
    np.testing.assert_allclose(info.loss, want, rtol=1e-12)


def test_raw_keys_are_taken(network):
    noisy = ft.Network(2, 3, model_size=4, depth=1, cell=ft.MinGRU.factory(), dropout=0.5, key=KEY)
    raw, new = jax.random.PRNGKey(1), jax.random.key(1)
    np.testing.assert_array_equal(
        *(ft.forward(noisy, None, XS[:2], key=key)[0] for key in (raw, new))
    )


def test_the_constant_of_the_norm_is_an_option():
    make = {"model_size": 4, "depth": 1, "cell": ft.MinGRU.factory(), "key": KEY}
    small, large = (ft.Network(2, 3, norm_eps=eps, **make) for eps in (1e-5, 1.0))
    x = jnp.arange(4.0)
    assert large.block(0).norm.eps == 1.0
    np.testing.assert_allclose(large.block(0).norm(x), (x - 1.5) / np.sqrt(1.25 + 1), rtol=1e-12)
    np.testing.assert_allclose(small.block(0).norm(x), (x - 1.5) / np.sqrt(1.25 + 1e-5), rtol=1e-12)
