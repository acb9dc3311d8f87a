"""What `foretrace export` does."""

import warnings

from foretrace import experiment
from foretrace._export.export import export
from foretrace._learner.learner import Learner
from foretrace._learner.optimizer import adamw
from foretrace._learner.state import UntrainedParameters
from foretrace._network import Network
from foretrace._runs.directory import RunError, is_run_of
from foretrace.cli._options import Export
from foretrace.cli._recorded import checkpoint_file, config_in, network_in
from foretrace.experiment._config import Config


def write_graph(command: Export) -> int:
    """Write the files, and print their names and sizes."""
    if command.run_dir.is_dir() and not is_run_of(command.run_dir, Config):
        raise RunError(
            f"{command.run_dir} is no run of `foretrace train`, the only kind that is exported; for the learner of a "
            "program of yours, use foretrace.export"
        )
    checkpoint = checkpoint_file(command.run_dir)
    config = config_in(checkpoint)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntrainedParameters)
        network = network_in(checkpoint, config)
        model: Network | Learner = network
        if command.learn:
            # The run learned from batches on a schedule that ends; the graph learns from one stream without end.
            rate = config.optimizer.learning_rate if command.learning_rate is None else command.learning_rate
            settings = config.optimizer.settings(None) | {"learning_rate": rate, "warmup_steps": 0}
            task, trained = experiment.build(config)
            model = Learner(network, rule=trained.rule, optimizer=adamw(**settings), loss=task.loss)
    files = export(model, command.out, command.format, command.learn)
    for path in filter(None, (*files, files.include)):
        print(f"{path}: {path.stat().st_size / 1000:.0f} kB")
    return 0
