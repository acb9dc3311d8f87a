"""Reading of rows from files and pipes, and their encoding as numbers, on the host."""
