"""A small run of each kind, which takes a second, for the tests of runs and of training."""

from foretrace import experiment, rl
from foretrace.rl._config import AgentConfig, RLConfig
from foretrace.stream import ModelConfig, StreamConfig

TRAINED = experiment.Config(
    task=experiment.Copy(pattern_length=3, padding=1, bits=2),
    network=experiment.NetworkConfig(
        depth=2, model_size=6, cell=experiment.LRU(state_size=4), dropout=0.1
    ),
    steps=40,
    batch_size=4,
    log_every=10,
    evaluate_every=20,
    align_every=20,
    checkpoint_every=15,
    validation_sequences=8,
    final_sequences=20,
)
AGENT = RLConfig(
    environment=rl.MemoryChain(2),
    network=experiment.NetworkConfig(1, 4, experiment.LRU(3)),
    agent=AgentConfig("q-learning", optimizer="obgd", normalize_observations=True),
    log_every=10,
    checkpoint_every=15,
    steps=40,
)
STREAM = StreamConfig(
    "a.csv",
    target="y",
    task="regression",
    model=ModelConfig("small", depth=1, model_size=4, state_size=2),
    log_every=15,
    checkpoint_every=25,
)
