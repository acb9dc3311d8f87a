"""Commands in processes of their own, and the tables that they print."""

import subprocess


def printed(*command, cwd=None, env=None, timeout=550):
    """Run a command; return all that it prints, or fail with that."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=env,
        timeout=timeout,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:]
    return done.stdout


def rows_of_table(text):
    """Return the numbers of each row of a printed table, by the name of the row."""
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in text.splitlines()
        if "│" in line
    ]
    return {
        name: [float(cell.rstrip("%")) for cell in cells if cell[:1].isdigit()]
        for name, *cells in rows
        if name
    }
