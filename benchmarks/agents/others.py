"""Tasks that others have defined."""

import dataclasses
import statistics
from functools import cached_property

from benchmarks.agents.own import config_of, learned
from foretrace.experiment import GRU, LRU, RTU, Beside, NetworkConfig
from foretrace.rl import AgentConfig, Gymnasium, Gymnax, RepeatFirst, RepeatPrevious
from foretrace.rl._config import TASKS

UPDATES = {
    "adam": {"optimizer": "adam", "learning_rate": 3e-4},
    "obgd": {"optimizer": "obgd", "learning_rate": 1.0},
}
SCALES = {"repeat-first": (-0.5, 1), "repeat-previous": (-0.5, 1), "chain": (0, 1)}
SCALES |= {"maze": (1.95, 4)}
VELOCITIES = {"CartPole-v1": [1, 3], "Acrobot-v1": [4, 5]}
REPEAT = {"repeat-first": RepeatFirst(), "repeat-previous": RepeatPrevious()}
KINDS = {"RTU": RTU(32), "GRU": GRU(), "RTU+GRU": Beside((RTU(32), GRU(32)))}
CELLS = {"LRU": NetworkConfig(2, 32, LRU(32)), "GRU": NetworkConfig(2, 32, GRU())}
CELLS |= {"RTU+GRU": NetworkConfig(1, 32, KINDS["RTU+GRU"])}


def control(cell):
    """Return the result of a cell of CartPole or Acrobot."""
    options = {"method": cell["method"], "normalize_observations": True, "scale_rewards": True}
    world = {"environment": Gymnax(cell["environment"]), "hide": tuple(cell["hide"])}
    return result("gymnax", cell, options, **world)


def repeat(cell):
    """Return the result of a cell of a card task."""
    network = CELLS[cell["cell"]]
    return result(
        "repeat-first", cell, {}, environment=REPEAT[cell["environment"]], network=network
    )


def choice(cell):
    """Return the result of a candidate, and its score: 0 is chance, 1 the best."""
    network = NetworkConfig(cell["depth"], 32, KINDS[cell["cell"]])
    if cell["environment"] in REPEAT:
        config = dataclasses.replace(TASKS[cell["environment"]], steps=cell["steps"])
    else:
        config = config_of(cell | {"rule": "online"})
    agent = dataclasses.replace(config.agent, discount=cell["discount"])
    found = learned(dataclasses.replace(config, network=network, agent=agent), cell["seeds"])
    chance, best = SCALES[cell["environment"]]
    return found | {"score": round((found["mean"] - chance) / (best - chance), 4)}


def popgym(cell):
    """Return the result in an environment of POPGym; its score is the return from 0 to 1."""
    # No episode is cut: the longest has 103 steps.
    environment = Gymnasium(f"benchmarks.agents.popgym:{cell['stream']}-v0", limit=104)
    found = result("memory-chain", cell, {}, environment=environment, network=CELLS[cell["cell"]])
    return found | {"score": (found["mean"] + 1) / 2}


def chain(cell):
    """Return the result on gymnax's memory chain; its score is the share of seeds above .5."""
    environment = GymnaxChain(length=cell["length"])
    found = result("memory-chain", cell, {}, environment=environment, network=CELLS[cell["cell"]])
    return found | {"score": statistics.mean(one > 0.5 for one in found["each"])}


@dataclasses.dataclass(frozen=True)
class GymnaxChain(Gymnax):
    """The memory chain of bsuite as gymnax has it, with a clock.

    Args:
        length: number of steps from the cue to the answer.
    """

    name: str = "MemoryChain-bsuite"
    length: int = 128

    @cached_property
    def _made(self):
        environment, params = super()._made
        return environment, params.replace(memory_length=self.length)


def result(task, cell, options, **changes):
    """Return the result of a cell on a task with some changes, and options of its agent."""
    options |= {name: cell[name] for name in ("trace_decay", "discount", "entropy")}
    agent = AgentConfig(**UPDATES[cell["update"]], **options)
    changes |= {"agent": agent, "rule": cell["rule"], "steps": cell["steps"]}
    return learned(dataclasses.replace(TASKS[task], **changes), cell["seeds"])
