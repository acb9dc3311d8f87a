"""A run of an agent: stopped anywhere it goes on bit for bit; its report."""

import dataclasses
import json
import shutil
import subprocess
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file
from stop_after_three import StopAfterThree
from tiers import fast

import foretrace as ft
from foretrace._options.cells import LRU
from foretrace._options.network import NetworkConfig
from foretrace._runs.directory import Run, RunError
from foretrace.cli import _main as cli
from foretrace.rl import MemoryChain, TMaze, TraceConditioning, _report, _run
from foretrace.rl._config import AgentConfig, RLConfig
from foretrace.rl._program import advance, begin, build

pytestmark = pytest.mark.usefixtures("as_a_user")

STEPS = 20_000
SMALL = {
    "network": NetworkConfig(1, 4, LRU(3)),
    "log_every": 10,
    "checkpoint_every": 20,
    "steps": 60,
}
CONFIG = RLConfig(environment=MemoryChain(2), environments=2, **SMALL)


@pytest.fixture(scope="module", autouse=True)
def as_a_user():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return _run.train(CONFIG, tmp_path_factory.mktemp("runs") / "whole", show_progress=False)


def lines(run):
    """Return the record, without times."""
    found = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in found]


def arrays(run):
    return {name: value for name, value in load_file(run.checkpoint).items() if name != "__extra__"}


def test_a_stopped_run_goes_on_bit_for_bit(finished, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("foretrace._runs.session.Stop", StopAfterThree)
        stopped = _run.train(CONFIG, tmp_path / "run", show_progress=False)
    assert stopped.step == 30 and stopped.scores is None
    again = _run.train(CONFIG, tmp_path / "run", resume=True, show_progress=False)
    assert json.dumps(lines(again.run)) == json.dumps(lines(finished.run))
    assert again.scores == finished.scores
    ours, theirs = arrays(again.run), arrays(finished.run)
    assert ours.keys() == theirs.keys()
    for name, array in ours.items():
        np.testing.assert_array_equal(array, theirs[name], err_msg=name)


def test_a_finished_run_is_not_run_again_and_nothing_is_overwritten(finished):
    again = _run.train(CONFIG, finished.run.path, resume=True, show_progress=False)
    assert again == finished
    with pytest.raises(RunError, match="holds a run already"):
        _run.train(CONFIG, finished.run.path)
    with pytest.raises(RunError, match="seed: 0, 1"):
        _run.train(dataclasses.replace(CONFIG, seed=1), finished.run.path, resume=True)


def test_the_record_counts_every_episode(finished):
    record = [line for line in lines(finished.run) if line["kind"] == "train"]
    assert sum(line["episodes"] for line in record) == 2 * 60 / 3
    assert all(-1 <= line["return"] <= 1 and line["refused"] == 0 for line in record)


@pytest.mark.full
def test_the_report_names_task_and_score(finished):
    grid = _report.table(finished.run.path)
    assert grid.title == "MemoryChain, actor-critic, rule online, LRU x 1"
    assert Path(_report.figure(finished.run.path)).read_bytes().startswith(b"\x89PNG")


@pytest.mark.full
@pytest.mark.parametrize(
    ("method", "entropy"), [("actor-critic", 0.01), ("actor-critic", 0.0), ("q-learning", 0.01)]
)
def test_the_report_counts_all_that_an_environment_carries(method, entropy):
    config = dataclasses.replace(CONFIG, agent=AgentConfig(method, entropy=entropy))
    state = build(config).init()
    kept = jax.tree.leaves((state.trace, state.entropy_grads, state.carry))
    count = (
        sum(leaf.size * (2 if jax.numpy.iscomplexobj(leaf) else 1) for leaf in kept)
        // config.environments
    )
    assert f"carries {count:,} numbers" in _report._cost(config)


def test_settings_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="nothing to choose; use prediction"):
        RLConfig(environment=TraceConditioning())
    with pytest.raises(ValueError, match="actions to choose"):
        RLConfig(environment=TMaze(), agent=AgentConfig("prediction"))
    with pytest.raises(ValueError, match=r"checkpoint_every=30 must be a multiple"):
        RLConfig(log_every=20, checkpoint_every=30)
    with pytest.raises(ValueError, match="scale_rewards=True does not fit"):
        RLConfig(
            environment=TraceConditioning(), agent=AgentConfig("prediction", scale_rewards=True)
        )


class Torn(MemoryChain):
    """A memory chain whose answers are paid with NaN where the cue is 1."""

    def step(self, state, action, key):
        after, step = super().step(state, action, key)
        bad = step.terminated & (state.cue > 0)
        return after, step._replace(reward=jax.numpy.where(bad, jax.numpy.nan, step.reward))


@pytest.mark.full
def test_a_compiled_loop_refuses_and_counts_rewards_that_are_not_finite():
    config = dataclasses.replace(CONFIG, environment=Torn(2), environments=1)
    agent = build(config)
    world, tally = jax.jit(partial(advance, config.environment, agent))(
        begin(config.environment, agent, jax.random.key(0)), 300
    )
    assert 30 < float(tally["refused"]) < 70 and float(tally["episodes"]) == 100
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(world.agent.network))
    assert 299 <= int(world.agent.step) + int(tally["refused"]) <= 300


def test_an_agent_has_the_network_its_options_name():
    network = dataclasses.replace(CONFIG.network, norm_eps=0.25, model_size=5)
    trunk = build(dataclasses.replace(CONFIG, network=network)).network
    assert trunk.blocks.norm.eps == 0.25 and trunk.model_size == 5


@pytest.mark.parametrize("discount", fast([0.9, 0.99]))
def test_the_value_of_trace_conditioning_is_the_mean_of_what_comes(discount):
    """In a stream of many events, discounted sums of them are the value on average."""
    environment = TraceConditioning(3, pause=2)

    @jax.jit
    def run():
        def act(state, key):
            after, step = environment.step(state, 0, key)
            return after, (state, step.reward)

        state, _ = environment.reset(jax.random.key(0))
        _, found = jax.lax.scan(act, state, jax.random.split(jax.random.key(1), STEPS))
        return *found, *jax.vmap(lambda state: environment.value(state, discount))(
            jax.numpy.arange(4)
        )

    states, rewards, values, known = map(np.asarray, run())
    returns, total = np.zeros(STEPS), 0.0
    for t in reversed(range(STEPS)):
        total = returns[t] = rewards[t] + discount * total
    means = [returns[:-1000][states[:-1000] == s].mean() for s in range(4)]
    np.testing.assert_allclose(means, values, rtol=0.02)
    np.testing.assert_array_equal(known, [False, True, True, True])


@pytest.mark.full
def test_divergence_ends_with_the_last_good_state_and_exit_code_1(tmp_path, capsys):
    words = [
        *"--steps=40 --log-every=10 --checkpoint-every=20 --network.depth=1".split(),
        *"--network.model-size=4".split(),
    ]
    words += [
        "--environment.length=2",
        "--agent.learning-rate=1e30",
        "--run-dir",
        str(tmp_path / "one"),
    ]
    assert cli.main(["rl", "memory-chain", *words, "--cell", "lru", "--state-size=3"]) == 1
    assert "learning has diverged" in capsys.readouterr().err
    kept = load_file(tmp_path / "one" / "checkpoint.safetensors")
    assert all(np.isfinite(array).all() for name, array in kept.items() if array.dtype.kind == "f")
    last = lines(Run(tmp_path / "one"))[-1]
    assert last["refused"] == 10 and np.isfinite(last["spectral_radius"])
    assert cli.main(["resume", str(tmp_path / "one")]) == 1


MAIN = """#include "agent.h"
#include <stdio.h>
int main(void)
{
    static agent model;
    REAL x[AGENT_INPUTS], outputs[AGENT_OUTPUTS];
    agent_init(&model);
    for (int t = 0; t < 5; ++t)
    {
        for (int i = 0; i < AGENT_INPUTS; ++i) x[i] = (REAL)(i - t);
        agent_predict(&model, x, outputs);
    }
    for (int i = 0; i < AGENT_OUTPUTS; ++i) printf("%.17g ", (double)outputs[i]);
    return 0;
}
"""


@pytest.mark.program
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("normalize", fast([True, False]))
@pytest.mark.exact
def test_the_network_of_an_agent_is_exported_with_its_normalisation(normalize, tmp_path, capsys):
    config = dataclasses.replace(
        CONFIG, agent=dataclasses.replace(CONFIG.agent, normalize_observations=normalize)
    )
    run = _run.train(config, tmp_path / "run", show_progress=False).run
    assert (
        cli.main(["export", str(run.path), "--format", "c", "--out", str(tmp_path / "agent.c")])
        == 0
    )
    out = capsys.readouterr().out
    assert out.count("kB") == 4 and "bytes of code and constants" in out
    agent, state = _run.agent_of(run.path)
    assert (state.observations is not None) == normalize
    xs = np.arange(agent.network.input_size) - np.arange(5.0)[:, None]
    xs = xs if state.observations is None else state.observations.normalised(xs)
    expected, _ = ft.forward(state.network, None, jax.numpy.asarray(xs))
    (tmp_path / "main.c").write_text(MAIN)
    real = "double" if expected.dtype == np.float64 else "float"
    call = [
        *"cc -std=c99 -Wall -Wextra -Werror".split(),
        f"-DREAL={real}",
        *"-o main main.c agent.c -lm".split(),
    ]
    subprocess.run(call, cwd=tmp_path, check=True)
    found = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout
    np.testing.assert_allclose(np.array(found.split(), float), expected[-1], rtol=1e-9, atol=1e-12)


def test_the_learning_step_of_an_agent_is_not_exported(finished, tmp_path, capsys):
    arguments = ["--format", "c", "--learn", "--out", str(tmp_path / "agent.c")]
    assert cli.main(["export", str(finished.run.path), *arguments]) == 2
    assert "draws actions" in capsys.readouterr().err and not list(tmp_path.iterdir())
