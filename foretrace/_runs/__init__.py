"""What every long run needs: directory, checkpoint, record, progress, a way to stop."""
