"""A small training run, which takes a second, for the tests of runs and of training."""

from foretrace import experiment

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
