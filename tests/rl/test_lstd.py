"""Least squares on temporal differences: the decoder solves the equations of all steps."""

import dataclasses
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rl_cases import lessons_of, make_agent, outputs_of, run, stream
from tiers import fast

from foretrace import cli, rl
from foretrace._runs.directory import create
from foretrace.cli import _main

DECAY, FORGET, PRIOR = 0.6, 0.99, 2.0


def least_squares(method=None, **options):
    options = {"optimizer": rl.LSTD(FORGET, PRIOR), "rule": "reservoir"} | options
    return make_agent(method or rl.ValuePrediction(), cell=None, trace_decay=DECAY, **options)


def rows_of(tree):
    """Return the numbers behind two leading axes as rows."""
    leaves = jax.tree.leaves(tree)
    return np.concatenate([np.reshape(leaf, (*leaf.shape[:2], -1)) for leaf in leaves], -1)


VALUES = rl.ValuePrediction()
CASES = [(rl.QLearning(0.5), 3, False), (VALUES, None, False), (VALUES, 3, True)]


@pytest.mark.exact
@pytest.mark.usefixtures("standard_promotion")
@pytest.mark.parametrize(("method", "streams", "scaled"), fast(CASES))
def test_the_decoder_solves_the_equations_of_all_steps(method, streams, scaled):
    """Episodes end, are cut, begin anew; discounts differ; steps are missing; some are huge."""
    agent = least_squares(method, batch_size=streams, scale_rewards=scaled)
    given = stream(150, streams, gaps=not scaled, huge=(60, 61, 62))

    @jax.jit
    @jax.jacobian
    def derivatives(decoder, one):
        """Return the derivatives of all outputs to the decoder, in which they are linear."""
        return outputs_of(eqx.tree_at(lambda n: n.decoder, agent.network, decoder), one)

    with jax.numpy_rank_promotion("allow"):
        _, (actions, _, (decoders, scales)) = run(
            agent, given, jax.random.key(2), lambda state: (state.network.decoder, state.rewards)
        )
        lessons = [
            (one, *map(rows_of, derivatives(agent.network.decoder, one)))
            for one in lessons_of(given)
        ]
        scale = np.sqrt(scales.moments.variance + 1e-8) if scaled else np.ones(150)
    theta = rows_of(jax.tree.map(lambda leaf: leaf[None], decoders))[0]
    choice = isinstance(method, rl.QLearning)
    taken = np.asarray(actions).reshape(150, -1).astype(int) if choice else np.zeros((150, 3), int)
    at, size = lessons[0][0].at, theta.shape[1]
    A, b, z = np.zeros((size, size)), np.zeros(size), np.zeros((len(lessons), size))
    waiting, solved, squares, bounded = 0, 0, 0.0, 0
    for k, t in enumerate(at):
        before, most = theta[max(t - 1, 0)], 10 * squares**0.5 or np.inf
        known = sum(one.known[k - 1] for one, *_ in lessons) if k else 0
        A, b, waiting = A * FORGET**known, b * FORGET**known, waiting + known
        for i, (one, rows, ahead) in enumerate(lessons):
            if k and one.known[k - 1]:
                reward = np.clip(one.reward[k - 1] / scale[t], -most, most)
                following = ahead[k - 1, (ahead[k - 1] @ before).argmax()]
                last = rows[k - 1, taken[at[k - 1], i]]
                A += np.outer(z[i], last - one.discount[k - 1] * following)
                b += z[i] * reward
                squares += reward**2
                bounded += reward != one.reward[k - 1] / scale[t]
        if waiting >= size:
            waiting, solved = 0, solved + 1
            want = np.linalg.solve(A + np.eye(size) / PRIOR, b)
            np.testing.assert_allclose(theta[t], want, rtol=1e-9, atol=1e-9)
        elif k:
            np.testing.assert_array_equal(theta[t], before)
        for i, (one, rows, _) in enumerate(lessons):
            values = rows[k] @ theta[t]
            ends = one.begins[k] or not one.known[k - 1] or values[taken[t, i]] < values.max()
            keep = 0 if ends else DECAY * one.discount[k - 1]
            z[i] = keep * z[i] + rows[k, taken[t, i]]
    assert solved >= 2 and (bounded or scaled)


@pytest.fixture(scope="module")
def predictions():
    """Return the last predictions and the number of refused steps, as one program."""
    agent = make_agent(
        rl.ValuePrediction(), cell=None, rule="reservoir", optimizer=rl.LSTD(0.999), discount=0.9
    )

    def step(state, now):
        prediction, state, _ = agent.step(state, rl.Transition(*now))
        return state, prediction

    @jax.jit
    def run(rows, rewards):
        _, state, _ = agent.step(agent.init(), rl.Transition(jnp.ones(2), first=True))
        state, found = jax.lax.scan(step, state, (rows, rewards))
        return found[-100:].mean(), state.skipped

    return run


@pytest.mark.parametrize(
    ("seen", "rewards", "want", "refused"),
    [
        ({20: 1e12}, {}, 10, 0),
        ({}, {1000: 1e12}, 10, 0),
        ({}, {1000: -1e18, 3000: 1e18}, 10, 0),
        ({}, dict.fromkeys(range(1000, 10_000), 1e12), 1e13, 0),
        ({}, {0: 1e20}, 10, 1),
    ],
)
def test_one_huge_number_is_soon_outweighed_and_rewards_that_stay_huge_count(
    seen, rewards, want, refused, predictions
):
    """A reward whose sum of squares would be infinite is refused."""
    rows, each = np.random.default_rng(1).normal(size=(10_000, 2)), np.ones(10_000)
    for t, size in seen.items():
        rows[t] *= size
    each[[*rewards]] = [*rewards.values()]
    found, skipped = predictions(jnp.float32(rows), jnp.float32(each))
    np.testing.assert_allclose(found, want, rtol=0.1)
    assert int(skipped) == refused


LEAST = "rl t-maze --rule reservoir --agent.optimizer lstd --agent.method sarsa --steps 10"


@pytest.mark.parametrize(
    ("command", "given", "named"),
    [
        (LEAST, "--cell rtu+gru", "--cell"),
        (LEAST, "--network.norm-eps 1e-5 --model_size=32", "--network.norm-eps, --model_size=32"),
        (f"sweep {LEAST} --grid seed=0,1", "--depth 1", "--depth"),
    ],
)
def test_what_least_squares_do_not_use_is_named_even_with_its_default_and_nothing_is_written(
    command, given, named, tmp_path, capsys
):
    words = [*command.split(), *given.split(), "--run-dir", str(tmp_path / "run")]
    assert cli.main(words) == 2
    said = capsys.readouterr().err
    assert f"error: {named} does not fit " in said and "optimizer=lstd" in said.lower()
    assert not (tmp_path / "run").exists()


def test_a_record_has_no_network_that_is_not_used(tmp_path):
    config = _main._parse(LEAST.split()).config
    run = create(tmp_path / "run", config)
    recorded = json.loads(run.config.read_text())["config"]
    assert recorded["network"] is None and recorded["agent"]["optimizer"] == "lstd"
    resume = ["resume", str(run.path), "--steps", "20"]
    assert cli.main([*resume, "--depth", "1"]) == 2
    assert _main._parse(resume).config == dataclasses.replace(config, steps=20)
