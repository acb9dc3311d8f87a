"""A run of an agent: interrupted anywhere it goes on bit for bit; its record, report, export."""

import dataclasses
import functools
import itertools
import json
from collections import Counter
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file
from tiers import fast

import foretrace as ft
from foretrace._options.cells import GRU, LRU, RTU, Beside
from foretrace._options.network import NetworkConfig
from foretrace._runs.directory import Run
from foretrace._runs.follow import DivergenceError
from foretrace.cli import _main as cli
from foretrace.rl import Gymnasium, MemoryChain, TMaze, TraceConditioning, _report, _run
from foretrace.rl._config import AgentConfig, RLConfig
from foretrace.rl._metrics import TITLES as METRICS
from foretrace.rl._program import advance, begin, build, method_of

SMALL = partial(
    RLConfig,
    network=NetworkConfig(1, 4, LRU(3)),
    environments=2,
    steps=60,
    log_every=10,
    checkpoint_every=20,
)
SCALED = {"normalize_observations": True, "scale_rewards": True}
STATE = "agent.state.safetensors"
BOTH = Beside((RTU(4), GRU(4)))
LEAST = {"network": None, "rule": "reservoir"}


KINDS = {
    # A checkpoint follows the first line of metrics behind 25 steps, and behind 50.
    "values": SMALL(
        TMaze(3), agent=AgentConfig("q-learning", optimizer="obgd", **SCALED), checkpoint_every=25
    ),
    "policy": SMALL(MemoryChain(2)),
    "prediction": SMALL(
        TraceConditioning(3), agent=AgentConfig("prediction"), network=NetworkConfig(1, 4, BOTH)
    ),
    "squares": SMALL(TMaze(3), agent=AgentConfig("sarsa", optimizer="lstd"), **LEAST),
    "gymnasium": SMALL(
        Gymnasium("Pendulum-v1", limit=7),
        agent=AgentConfig(entropy=0.0),
        hide=(1,),
        evaluation_episodes=3,
    ),
}
TITLES = {
    "policy": "MemoryChain, actor-critic, rule online, LRU x 1",
    "prediction": "TraceConditioning, prediction, rule online, RTU+GRU x 1",
    "squares": "TMaze, sarsa, rule reservoir, LSTD on untrained modules",
    "gymnasium": "Pendulum-v1 (without elements 1), actor-critic, rule online, LRU x 1",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the result of a kind of run that was never interrupted."""

    @functools.cache
    def result_of(kind):
        if kind == "gymnasium":
            pytest.importorskip("gymnasium")
        folder = tmp_path_factory.mktemp("runs") / "whole"
        return _run.train(KINDS[kind], folder, show_progress=False)

    return result_of


def lines(run, kind="train"):
    """Return the record, without times."""
    found = map(json.loads, run.metrics.read_text().splitlines())
    return [{**line, "seconds": None} for line in found if line["kind"] in (kind, "result")]


class Killed(BaseException):
    """The process ends within a run, a line behind its checkpoint."""


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupted_run_goes_on_bit_for_bit(kind, whole, tmp_path, monkeypatch):
    """`tests/runs` has the other ways to end, for values in the fast tier."""
    expected, again = whole(kind), partial(_run.train, KINDS[kind], tmp_path, show_progress=False)
    blocks = itertools.count()

    def killed(*given, means=_run.means):
        if next(blocks) == 3:
            raise Killed
        return means(*given)

    with monkeypatch.context() as patch:
        patch.setattr(_run, "means", killed)
        with pytest.raises(Killed):
            again()
    assert lines(Run(tmp_path))[-1]["step"] == 30
    if kind == "gymnasium":  # a new process has no environment that stands within its episodes
        _run._compiled.cache_clear()
    found = again(resume=True)
    # As JSON, where NaN is equal to NaN.
    assert json.dumps(lines(found.run)) == json.dumps(lines(expected.run))
    assert json.dumps(found.scores) == json.dumps(expected.scores)
    ours, theirs = (load_file(result.run.checkpoint) for result in (found, expected))
    assert ours.keys() == theirs.keys()
    for name in ours.keys() - {"__extra__"}:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


@pytest.mark.full
def test_a_run_ends_where_all_steps_of_two_blocks_in_a_row_are_refused(tmp_path, monkeypatch):
    """Blocks of ten steps of two environments, a checkpoint behind every second one."""
    refused = iter([20, 10, 20, 0, 20, 20])
    tally = dict.fromkeys((*METRICS, "known"), 1.0) | {"steps": 20.0}

    def block(state, steps):
        return state, tally | {"refused": float(next(refused)) / 2}

    monkeypatch.setattr(_run, "_compiled", lambda config: block)
    config = dataclasses.replace(KINDS["policy"], steps=80)
    train = partial(_run.train, config, tmp_path, show_progress=False)
    with pytest.raises(DivergenceError, match="in 20 steps in a row, up to step 60; try a smaller"):
        train()
    refused = iter([20])
    with pytest.raises(DivergenceError, match="in 30 steps in a row, up to step 70"):
        train(resume=True)


class Ending(TraceConditioning):
    """Trace conditioning whose episodes end at the event."""

    def step(self, state, action, key):
        state, step = super().step(state, action, key)
        return state, step._replace(terminated=step.reward > 0)


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "environment"),
    fast([("prediction", Ending(3)), ("policy", MemoryChain(2)), ("squares", TMaze(3))]),
)
def test_a_block_counts_what_its_steps_bring(kind, environment):
    """Sums of a compiled block are those of its steps."""
    agent, count = build(KINDS[kind]), KINDS[kind].environments
    run, steps = jax.jit(partial(advance, environment, agent)), 160
    begun = jax.jit(partial(begin, environment, agent))(jax.random.key(0))
    value_of = getattr(environment, "value", lambda state, discount: (0.0, False))
    values = jax.jit(jax.vmap(lambda state: value_of(state, agent.discount)))
    world, paid, sums = begun, np.zeros(count), Counter()
    for _ in range(steps):
        action, _, info = agent.step(world.agent, world.transition)
        (value, known), (after, _) = values(world.environments), run(world, 1)
        total = paid + after.transition.reward
        done = np.asarray(after.transition.terminated | after.transition.truncated)
        paid = np.where(done, 0, total)
        each = {
            "episodes": done,
            "return": np.where(done, total, 0),
            "reward": after.transition.reward,
            "td_error": np.abs(info.td_error),
            "update_norm": info.update_norm * count,
            "error": np.where(known, (action - value) ** 2, 0),
            "known": known,
            "refused": after.agent.skipped - world.agent.skipped,
        }
        sums.update({name: float(np.sum(numbers)) for name, numbers in each.items()})
        world = after
    world, tally = run(begun, steps)
    assert tally["steps"] == steps * count and float(tally["spectral_radius"]) > 0
    assert sums["episodes"] > 0
    for name, total in sums.items():
        np.testing.assert_allclose(tally[name], total, rtol=1e-4, err_msg=name)
    networks = begun.agent.network, world.agent.network
    assert tally["untrained_modules"] == (kind == "squares")
    if kind == "squares":
        jax.tree.map(np.testing.assert_array_equal, *(network.layers for network in networks))
    assert not np.allclose(*(jax.tree.leaves(network.decoder)[0] for network in networks))


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
def test_the_report_names_task_and_score_and_counts_what_an_environment_carries(kind, whole):
    result, config = whole(kind), KINDS[kind]
    grid = _report.table(result.run.path)
    assert grid.title == TITLES.get(kind, grid.title)
    assert Path(_report.figure(result.run.path)).read_bytes().startswith(b"\x89PNG")
    rows = {
        "3 episodes without learning": kind == "gymnasium",
        "the best constant prediction": kind == "prediction",
        "the best possible": kind not in ("gymnasium", "prediction"),
    }
    names, scores = ([*column.cells] for column in grid.columns[:2])
    assert {row: row in names for row in rows} == rows
    assert scores[0] == f"{result.scores[_report.score_of(config)]:.3g}"
    state = jax.eval_shape(build(config).init)
    kept = [state.trace, state.entropy_grads, state.carry, state.outcome.final.gradient]
    kept += [state.opt_state.gradient] if kind == "squares" else []
    sizes = [leaf.size * (1 + np.iscomplexobj(leaf)) for leaf in jax.tree.leaves(kept)]
    assert f"carries {sum(sizes) // config.environments:,} numbers" in grid.caption


def test_an_agent_has_the_network_and_the_exploration_that_its_options_name():
    epsilon = method_of(AgentConfig("sarsa", epsilon=0.25, epsilon_steps=10)).epsilon
    np.testing.assert_allclose([epsilon(t) for t in (0, 5, 10, 99)], [1.0, 0.625, 0.25, 0.25])
    network = dataclasses.replace(KINDS["policy"].network, norm_eps=0.25, model_size=5)
    config = dataclasses.replace(KINDS["policy"], network=network)
    trunk = jax.eval_shape(lambda: build(config).network)
    assert trunk.blocks.norm.eps == 0.25 and trunk.model_size == 5
    assert RLConfig(network=None) == RLConfig()


@pytest.mark.full
def test_divergence_ends_with_the_last_good_state(tmp_path):
    config = dataclasses.replace(KINDS["policy"], agent=AgentConfig(learning_rate=1e30))
    with pytest.raises(DivergenceError, match="learning has diverged"):
        _run.train(config, tmp_path, show_progress=False)
    kept = load_file(tmp_path / "checkpoint.safetensors")
    assert all(np.isfinite(array).all() for array in kept.values() if array.dtype.kind == "f")
    last = lines(Run(tmp_path))[-1]
    assert last["refused"] == 10 and np.isfinite(last["spectral_radius"])
    assert cli.main(["resume", str(tmp_path)]) == 1


@pytest.mark.full
def test_the_network_of_an_agent_is_exported_with_its_normalisation(whole, tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="pip install 'foretrace[export]'")
    run, graph = whole("values").run.path, tmp_path / "agent.onnx"
    assert cli.main(["export", str(run), "--format", "onnx", "--out", str(graph)]) == 0
    agent, state = _run.agent_of(run)
    xs = np.float32(np.arange(agent.network.input_size) - np.arange(5.0)[:, None])
    seen = jnp.asarray(state.observations.normalised(xs), jnp.float32)
    expected, _ = ft.forward(state.network, None, seen)
    session, given = runtime.InferenceSession(graph.read_bytes()), load_file(tmp_path / STATE)
    for x in xs:
        results = session.run(None, {**given, "x": x})
        given = {
            out.name.removeprefix("next."): result
            for out, result in zip(session.get_outputs(), results, strict=True)
        }
        found = given.pop("outputs")
    np.testing.assert_allclose(found, expected[-1], rtol=1e-4, atol=1e-6)
