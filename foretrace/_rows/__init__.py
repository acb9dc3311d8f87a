"""Rows of files and pipes, their numbers and their labels; all on the host."""
