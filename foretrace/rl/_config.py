"""Typed, frozen dataclasses of a run: options of `foretrace rl`, and its `config.json`."""

import dataclasses
import typing
from typing import Annotated, Literal

import tyro

from foretrace._options.cells import GRU, RTU, Beside
from foretrace._options.network import NetworkConfig
from foretrace._options.rule import RuleText
from foretrace._rule import rule_text
from foretrace._runs.config_json import check_types, differences
from foretrace.rl._agent import LEARNING_RATE
from foretrace.rl._checks import check_ranges
from foretrace.rl._environment import Environment
from foretrace.rl._gymnasium import Gymnasium
from foretrace.rl._gymnax import Gymnax
from foretrace.rl._masked import Masked
from foretrace.rl._memory_chain import MemoryChain
from foretrace.rl._repeat import RepeatFirst, RepeatPrevious
from foretrace.rl._t_maze import TMaze
from foretrace.rl._trace_conditioning import TraceConditioning

EnvironmentConfig = (
    MemoryChain | TMaze | TraceConditioning | RepeatFirst | RepeatPrevious | Gymnax | Gymnasium
)
if typing.TYPE_CHECKING:
    AgentNetwork = NetworkConfig
else:
    # Only for reading: config.json has None for an unused network, which becomes the task's
    # default.
    AgentNetwork = Annotated[NetworkConfig | None, tyro.conf.arg(constructor=NetworkConfig)]
Method = Literal["actor-critic", "q-learning", "sarsa", "prediction"]


@dataclasses.dataclass(frozen=True)
class AgentConfig:
    """Options of an agent's learning.

    Args:
        method: what is learned. actor-critic: a policy and its value. q-learning, sarsa: the values
            of actions. prediction: a value.
        discount: discount of the value of the next state (gamma).
        trace_decay: decay of the trace of gradients in addition to the discount (lambda).
        optimizer: obgd and adam update along the trace, and obgd bounds its step by the error. lstd
            solves for the values by least squares on 24 untrained modules, for rewards that are far
            away. It needs --rule reservoir and, if there are actions, --agent.method sarsa.
        learning_rate: largest step size of obgd, or the learning rate of adam. Default: 1 for obgd,
            0.0003 for adam.
        kappa: safety factor of obgd; a larger factor makes smaller steps.
        actor_weight: weight of the log-probability of an action, relative to the value.
        entropy: weight of the entropy of the policy.
        epsilon: probability of a random action at the end of its decay, for q-learning and sarsa.
        epsilon_steps: number of steps over which this probability falls from 1.
        normalize_observations: whether to subtract the running mean from observations and divide
            them by their running standard deviation.
        scale_rewards: whether to divide rewards by the running standard deviation of their
            discounted sum.
    """

    method: Method = "actor-critic"
    discount: float = 0.99
    trace_decay: float = 0.8
    optimizer: Literal["obgd", "adam", "lstd"] = "adam"
    learning_rate: Annotated[float | None, tyro.conf.arg(aliases=("--lr",))] = None
    kappa: float = 2.0
    actor_weight: float = 1.0
    entropy: float = 0.01
    epsilon: float = 0.05
    epsilon_steps: int = 10_000
    normalize_observations: bool = False
    scale_rewards: bool = False

    def __post_init__(self) -> None:
        check_types(self)
        check_ranges(self, "agent.{}")

    @property
    def step_size(self) -> float:
        """Largest step size of obgd, or the learning rate of adam."""
        if self.learning_rate is not None:
            return self.learning_rate
        return 1.0 if self.optimizer == "obgd" else LEARNING_RATE


@dataclasses.dataclass(frozen=True)
class RLConfig:
    """One run of an agent.

    Args:
        environment: environment in which the agent acts.
        hide: elements of the observation that the agent does not see, by position from 0, such as
            `1 3`.
        network: network of the agent. With agent.optimizer=lstd, untrained modules replace it.
        agent: options of the agent's learning.
        rule: learning rule, such as bptt, or "online(depth=2)" for credit through two higher
            recurrent layers.
        steps: number of steps of each environment, each of which gives one update.
        environments: number of environments side by side, which share the network.
        seed: seed of the initialisation, the environments and the actions.
        evaluation_episodes: number of episodes after the last step in which the agent takes the
            best actions and does not learn. The report shows their mean return. 0 for none.
        log_every: number of steps between lines of metrics. Each line is about these steps.
        checkpoint_every: number of steps between checkpoints. Each checkpoint follows a line of
            metrics.

    Raises:
        ValueError: a value has the wrong type, a number is out of range, or options contradict each
            other. `build` checks the other conditions.
    """

    environment: Annotated[EnvironmentConfig, tyro.conf.AvoidSubcommands] = MemoryChain()
    hide: tuple[int, ...] = ()
    network: AgentNetwork = NetworkConfig(1, 32, Beside((RTU(32), GRU(32))))
    agent: AgentConfig = AgentConfig()
    rule: RuleText = "online"
    steps: int = 200_000
    environments: int = 1
    seed: int = 0
    evaluation_episodes: int = 0
    log_every: int = 2000
    checkpoint_every: int = 20_000

    def __post_init__(self) -> None:
        check_types(self)
        object.__setattr__(self, "rule", rule_text(self.rule))
        check_ranges(self, "{}")
        agent, predicts = self.agent, self.agent.method == "prediction"
        squares, update = agent.optimizer == "lstd", f"agent.optimizer={agent.optimizer}"
        method, task = f"agent.method={agent.method}", type(self.environment).__name__
        for setting, unfit, other in (
            (
                f"agent.kappa={agent.kappa}",
                agent.optimizer != "obgd" and agent.kappa != AgentConfig.kappa,
                f"{update}: it is an option of obgd; leave it out",
            ),
            (
                f"agent.learning_rate={agent.learning_rate}",
                squares and agent.learning_rate is not None,
                f"{update}, which solves for the values; leave it out",
            ),
            (
                f"agent.scale_rewards={agent.scale_rewards}",
                agent.scale_rewards and (squares or predicts),
                f"{update if squares else method}: values would be in units of the scaled rewards, "
                "which change over time; use --agent.scale-rewards False",
            ),
            (
                method,
                predicts != self.environment.predicts,
                f"{task}: prediction is for tasks without actions, and is their only method",
            ),
            (
                f"evaluation_episodes={self.evaluation_episodes}",
                predicts and self.evaluation_episodes > 0,
                f"{method}: no return depends on a prediction; leave it out",
            ),
        ):
            if unfit:
                raise ValueError(f"{setting} does not fit {other}")
        if squares or self.network is None:
            own = TASKS[task_name(self.environment)].network
            if self.network not in (None, own, RLConfig.network):
                changed = differences(own, self.network, "network")
                raise ValueError(without_network([line.split(":")[0] for line in changed]))
            object.__setattr__(self, "network", own)

    @property
    def unused(self) -> tuple[str, ...]:
        """Names of the settings that have no effect, which are recorded as null."""
        return ("network",) if self.agent.optimizer == "lstd" else ()

    @property
    def seen(self) -> Environment:
        """The environment as the agent sees it.

        Raises:
            ValueError: the observation has no element to hide at a given position.
        """
        return Masked(self.environment, self.hide) if self.hide else self.environment


_SCALED = AgentConfig(normalize_observations=True, scale_rewards=True)

TASKS = {
    "memory-chain": RLConfig(),
    "t-maze": RLConfig(TMaze()),
    "trace-conditioning": RLConfig(
        TraceConditioning(), agent=AgentConfig("prediction", discount=0.9)
    ),
    # Two layers of gated units learn this task faster than the default network.
    "repeat-first": RLConfig(RepeatFirst(), network=NetworkConfig(2, 32, GRU())),
    "repeat-previous": RLConfig(RepeatPrevious()),
    "gymnax": RLConfig(Gymnax(), agent=_SCALED),
    "gymnasium": RLConfig(Gymnasium(), agent=_SCALED, steps=50_000, evaluation_episodes=20),
}
"""The tasks on the command line, each with its default configuration."""


def without_network(given: list[str]) -> str:
    """Return an error about options of the network that have no effect."""
    return (
        f"{', '.join(given)} does not fit agent.optimizer=lstd, which reads the values from 24 "
        "untrained modules in place of a network; leave it out"
    )


def task_name(environment: EnvironmentConfig) -> str:
    """Return the name of an environment on the command line.

    >>> task_name(TMaze())
    't-maze'
    """
    return next(
        name for name, config in TASKS.items() if type(config.environment) is type(environment)
    )
