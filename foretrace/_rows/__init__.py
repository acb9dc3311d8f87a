"""Rows of files and pipes, their encoding as numbers and their labels; everything here runs on the host."""
