"""The `foretrace` command."""

from foretrace.cli._main import main as main
