"""`python -m foretrace` is the `foretrace` command."""

import sys

from foretrace.cli._main import main

if __name__ == "__main__":
    sys.exit(main())
