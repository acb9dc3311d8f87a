"""Rows of files and pipes, their encoding as numbers and their labels, on the host."""
