"""Losses: labels that are no class, inside compiled programs, and labels that do not count."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from foretrace.losses import SoftmaxCrossEntropy, softmax_cross_entropy

OUTPUT = jnp.array([0.5, -1.0, 2.0])
differentiated = jax.jit(jax.value_and_grad(softmax_cross_entropy))


@pytest.mark.parametrize("label", [-1, 2**31 - 1])
def test_a_label_that_is_no_class_makes_loss_and_gradient_nan(label):
    value, grad = differentiated(OUTPUT, jnp.int32(label))
    assert jnp.isnan(value) and jnp.isnan(grad).all()


def test_every_class_has_the_loss_of_its_definition():
    shares = np.exp(OUTPUT) / np.exp(OUTPUT).sum()
    for label in range(3):
        value, grad = differentiated(OUTPUT, jnp.asarray(label))
        np.testing.assert_allclose(value, -np.log(shares[label]), rtol=1e-14)
        np.testing.assert_allclose(grad, shares - np.eye(3)[label], rtol=1e-13)


def test_an_ignored_label_does_not_count():
    loss = SoftmaxCrossEntropy(ignore_label=-1)
    both = jax.jit(jax.value_and_grad(loss))
    value, grad = both(OUTPUT, jnp.asarray(-1))
    assert value == 0 and (grad == 0).all()
    # Of two outputs, the one that counts has the loss that it has alone.
    value, grad = both(jnp.concatenate([OUTPUT, 2 * OUTPUT]), jnp.array([-1, 1]))
    alone, own = both(2 * OUTPUT, jnp.asarray(1))
    np.testing.assert_allclose(value, alone, rtol=1e-14)
    np.testing.assert_allclose(grad, np.concatenate([np.zeros(3), own]), rtol=1e-14)
    assert np.isnan(both(OUTPUT, jnp.asarray(-2))[0])
    loss.check(3, np.array([0, -1, 2]))
    with pytest.raises(ValueError, match="the label -2"):
        loss.check(3, np.array([0, -1, -2]))


def test_equal_losses_share_their_programs():
    assert (
        hash(SoftmaxCrossEntropy()) == hash(softmax_cross_entropy)
        and SoftmaxCrossEntropy() == softmax_cross_entropy
    )
    assert SoftmaxCrossEntropy(ignore_label=-1) != softmax_cross_entropy
