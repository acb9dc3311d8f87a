"""Options on the command line that several kinds of runs have: rule, cell and network."""
