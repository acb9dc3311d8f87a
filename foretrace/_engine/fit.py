"""A predictor of errors, fitted to sequences."""

from foretrace._credit.prediction import Predictor, added, fitted, init_predictor
from foretrace._engine.checks import check_chunk
from foretrace._engine.gradient import Loss, jitted_evaluate
from foretrace._network import Network
from foretrace._rule import LearningRule, as_rule
from foretrace._types import Array, Float, Mask


def fit_predictor(
    network: Network,
    xs: Float[Array, "*B T I"],
    ys: Array,
    *,
    rule: LearningRule | str,
    loss: Loss,
    mask: Mask | None = None,
    reset: Array | None = None,
    passes: int = 2,
) -> Predictor:
    """Return what predicts the errors of a network, fitted to whole sequences.

    Args:
        network: the network.
        xs: inputs, (T, I) or (B, T, I).
        ys: targets, the same axes in front.
        rule: a rule `with_predicted_errors`.
        loss: loss of one step.
        mask: which steps count.
        reset: steps that start an episode.
        passes: how often all is gone through. What a layer has to predict contains the predictions of the layers
            above, so that after n passes the n upper layers are fitted to what is right.

    Raises:
        TypeError, ValueError: as in `gradient`, a rule that predicts no errors, or less than one pass.

    >>> import foretrace as ft, jax, jax.numpy as jnp
    >>> network = ft.Network(2, 3, model_size=8, depth=2, cell=ft.LRU.factory(state_size=4), key=jax.random.key(0))
    >>> rule, loss = ft.ONLINE.with_predicted_errors(), ft.losses.softmax_cross_entropy
    >>> xs, ys = jax.random.normal(jax.random.key(1), (10, 20, 2)), jnp.zeros((10, 20), int)
    >>> predictor = fit_predictor(network, xs, ys, rule=rule, loss=loss)
    >>> without = ft.alignment(network, xs, ys, rule=ft.ONLINE, loss=loss)
    >>> fitted = ft.alignment(network, xs, ys, rule=rule, loss=loss, predictor=predictor)
    >>> bool(fitted.total > without.total)
    True
    """
    rule = as_rule(rule)
    check_chunk(network, xs, ys, mask, reset)
    if not rule.predicted:
        raise ValueError(f"fit_predictor is for a rule with_predicted_errors(), got {rule}")
    if passes < 1:
        raise ValueError(f"fit_predictor(passes={passes}) must be at least 1")
    predictor = init_predictor(network)
    for _ in range(passes):
        found = jitted_evaluate(
            network, None, xs, ys, mask, reset, predictor=predictor, rule=rule, loss=loss, keep_carry=False
        )
        assert found.moments is not None
        predictor = fitted(added(predictor, *found.moments))
    return predictor
