"""Runs of `foretrace stream` and `predict`: options, plan, files, tables and figures."""
