"""The `foretrace` command."""

from foretrace.cli._main import main as main
from foretrace.cli._main import run as run
