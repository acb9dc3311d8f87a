"""`python -m foretrace` is the `foretrace` command."""

from foretrace.cli._main import run

if __name__ == "__main__":
    run()
