"""What `foretrace rl` and the report of its run do."""

import dataclasses

from foretrace._runs.directory import default_path
from foretrace.cli._kinds import again, report, stopped
from foretrace.cli._options import RL
from foretrace.rl._run import train
from foretrace.rl._series import Series


def rl(command: RL) -> int:
    """Let an agent learn; return the exit code."""
    run_dir = default_path(command.task) if command.run_dir is None else command.run_dir
    environment = command.config.environment
    if isinstance(environment, Series):
        command = dataclasses.replace(
            command, config=dataclasses.replace(command.config, environment=environment.pinned())
        )
    result = train(command.config, run_dir, resume=command.resume)
    if result.scores is not None:
        return report(run_dir)
    return stopped(f"after step {result.step} of {command.config.steps}; the state is saved", again("rl", run_dir))
