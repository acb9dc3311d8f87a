"""Parts of every long run: directory, checkpoint, record, progress, stop requests."""
