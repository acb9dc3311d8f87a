"""UORO: exact inside a chunk, and right on average over all signs that can be drawn."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import fast

import foretrace as ft
from foretrace._credit.sketches import signs
from foretrace._engine.data import Data
from foretrace._engine.gradient import evaluate, jitted_evaluate
from foretrace._rule import Sketches

LOSS = ft.losses.softmax_cross_entropy
XS = np.random.default_rng(0).normal(size=(5, 2))
YS = np.random.default_rng(1).integers(0, 3, size=5)

# Few real numbers of state, so that all their signs can be tried: two layers of one complex or two
# real ones.
CELLS = {
    "lru": ft.LRU.factory(state_size=1, r_min=0.5),
    "tanh": ft.LinearRNN.factory(state_size=2, tanh=True),
}


@pytest.fixture(params=fast(list(CELLS)))
def network(request):
    return ft.Network(2, 3, model_size=3, depth=2, cell=CELLS[request.param], key=jax.random.key(0))


def vector(tree):
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def signs_of(h, key):
    """Return the signs that a stream with this key draws after its next chunk, as one vector."""
    _, now = jax.random.split(key)
    parts = jax.tree.map(
        lambda leaf: jnp.stack([leaf.real, leaf.imag]), signs(h, jax.random.split(now, 1)[0])
    )
    return vector(parts)


def keys_of_every_pattern(h):
    """Return a key for every choice of signs."""
    keys = jax.random.split(jax.random.key(0), 500)
    _, first = np.unique(jax.vmap(partial(signs_of, h))(keys), axis=0, return_index=True)
    numbers = sum(leaf.size * (2 if jnp.iscomplexobj(leaf) else 1) for leaf in jax.tree.leaves(h))
    assert len(first) == 2**numbers
    return keys[first]


def summed(network, rule, sizes, keys=()):
    """Return the gradient of the sequence in chunks of these sizes; `keys` draw the signs."""
    start, total = 0, 0.0
    carry = ft.init_carry(network, rule)
    for i, size in enumerate(sizes):
        last = i == len(keys)
        if not last:
            carry = carry._replace(key=jax.random.key_data(keys[i])[None])
        data = Data(jnp.asarray(XS[start : start + size]), jnp.asarray(YS[start : start + size]))
        found = evaluate(network, carry, data, rule=rule, loss=LOSS, return_carry=not last)
        total, carry, start = total + vector(found.grads), found.carry, start + size
    return total


def exact(network):
    xs, ys = jnp.asarray(XS), jnp.asarray(YS)
    return vector(
        evaluate(network, None, Data(xs, ys), rule=ft.BPTT, loss=LOSS, return_carry=False).grads
    )


@pytest.mark.full
@pytest.mark.parametrize("sizes", fast([((2, 3),), ((1, 2, 2),)]), ids=str)
def test_the_mean_over_all_signs_is_the_gradient(network, sizes):
    every = keys_of_every_pattern(ft.init_carry(network, ft.UORO).h)
    run = partial(summed, network, ft.UORO, sizes)
    if len(sizes) == 2:
        found = jax.jit(jax.vmap(lambda key: run([key])))(every)
    else:
        found = jax.jit(jax.vmap(jax.vmap(lambda a, b: run([a, b]), (None, 0)), (0, None)))(
            every, every
        )
    found, want = np.asarray(found).reshape(-1, found.shape[-1]), np.asarray(exact(network))
    np.testing.assert_allclose(found.mean(0), want, atol=1e-10)
    assert np.linalg.norm(found - want, axis=1).max() > 1e-3  # each alone is noisy


@pytest.mark.full
def test_a_whole_sequence_is_backpropagation_through_time(network):
    xs, ys = jnp.asarray(XS), jnp.asarray(YS)
    found = jitted_evaluate(
        network, None, Data(xs, ys), rule=ft.UORO, loss=LOSS, return_carry=False
    )
    np.testing.assert_allclose(vector(found.grads), exact(network), atol=1e-12)


@pytest.mark.full
def test_more_sketches_are_less_noisy_and_streams_differ(network):
    streams = 200
    xs = jnp.broadcast_to(jnp.asarray(XS), (streams, *XS.shape))
    ys = jnp.broadcast_to(jnp.asarray(YS), (streams, len(YS)))

    @partial(jax.jit, static_argnames="rule")
    def error(rule):
        def one(x, y, key):
            carry = ft.init_carry(network, rule, key=key)
            total = 0.0
            for t in range(len(YS)):
                found = evaluate(
                    network, carry, Data(x[t : t + 1], y[t : t + 1]), rule=rule, loss=LOSS
                )
                total, carry = total + vector(found.grads), found.carry
            return total

        return jax.vmap(one)(xs, ys, jax.random.split(jax.random.key(0), streams))

    want = np.asarray(exact(network))
    one, eight = (np.asarray(error(rule)) - want for rule in (ft.UORO, ft.rule("uoro(sketches=8)")))
    spread = [np.linalg.norm(e, axis=1).mean() for e in (one, eight)]
    assert spread[1] < spread[0] / 2  # the square root of 8, but for chance
    # The mean of many streams is nearer than one of them: their noise is not the same.
    assert np.linalg.norm(one.mean(0)) < spread[0] / 4


@pytest.mark.full
def test_a_reset_cuts_what_was_carried(network):
    """After it the gradient comes from the steps behind it alone."""
    reset = jnp.arange(3) == 0
    xs, ys = jnp.asarray(XS), jnp.asarray(YS)
    carry = ft.init_carry(network, ft.UORO)
    carry = jitted_evaluate(network, carry, Data(xs[:2], ys[:2]), rule=ft.UORO, loss=LOSS).carry
    found = jitted_evaluate(
        network, carry, Data(xs[2:], ys[2:], reset=reset), rule=ft.UORO, loss=LOSS
    )
    alone = jitted_evaluate(
        network, None, Data(xs[2:], ys[2:]), rule=ft.BPTT, loss=LOSS, return_carry=False
    )
    np.testing.assert_allclose(vector(found.grads), vector(alone.grads), atol=1e-12)


@pytest.mark.full
def test_a_batch_is_the_mean_of_its_streams(network):
    xs, ys = jnp.stack([XS, -XS]), jnp.stack([YS, YS])
    carry = ft.init_carry(network, ft.UORO, 2)
    singles = [
        ft.init_carry(network, ft.UORO, key=key) for key in jax.random.split(jax.random.key(0), 2)
    ]
    total, mean = 0.0, 0.0
    for part in (slice(0, 2), slice(2, 5)):
        found = jitted_evaluate(
            network, carry, Data(xs[:, part], ys[:, part]), rule=ft.UORO, loss=LOSS
        )
        streams = zip(singles, xs, ys, strict=True)
        ones = [
            jitted_evaluate(network, c, Data(x[part], y[part]), rule=ft.UORO, loss=LOSS)
            for c, x, y in streams
        ]
        carry, singles = found.carry, [one.carry for one in ones]
        total, mean = total + vector(found.grads), mean + sum(vector(one.grads) for one in ones) / 2
    np.testing.assert_allclose(total, mean, atol=1e-12)


@pytest.mark.full
def test_states_that_stand_still_do_not_repeat_their_signs():
    """A stream of zeros: with signs from the states alone, all steps would share one draw."""
    network = ft.Network(2, 3, model_size=3, depth=2, cell=CELLS["tanh"], key=jax.random.key(0))
    carry, drawn = ft.init_carry(network, ft.UORO), []
    data = Data(jnp.zeros((1, 2)), jnp.zeros(1, int))
    advance = jax.jit(lambda carry: evaluate(network, carry, data, rule=ft.UORO, loss=LOSS).carry)
    for _ in range(64):
        before, carry = carry, advance(carry)
        drawn.append(signs_of(carry.h, jax.random.wrap_key_data(before.key[0])))
    # As far as float32 sees, they stand still.
    np.testing.assert_allclose(before.h, carry.h, atol=1e-9)
    last = np.array(drawn[32:])
    assert len({tuple(row) for row in last}) > 10  # of 16 choices
    assert (np.abs(last.mean(0)) < 4 / np.sqrt(len(last))).all()


def test_a_sketch_leaves_nothing_closed():
    with pytest.raises(ValueError, match="sketch"):
        dataclasses.replace(ft.ONLINE, credit=Sketches(2))
    for number in (-1, 0, True):
        with pytest.raises(ValueError, match=f"sketches={number}"):
            Sketches(number)
    with pytest.raises(ValueError, match="sketch"):
        ft.rule("uoro(sketches=True)")


def test_sketches_are_for_uoro():
    assert str(ft.rule("uoro(sketches=4)")) == "UORO(sketches=4)" and str(ft.UORO) == "UORO"
    for text in ("online(sketches=2)", "hybrid(sketches=1)", "bptt(sketches=1)"):
        with pytest.raises(ValueError, match="'sketches=.' is not an option"):
            ft.rule(text)
    with pytest.raises(ValueError, match="sketches=0 must be an integer of at least 1"):
        ft.rule("uoro(sketches=0)")
