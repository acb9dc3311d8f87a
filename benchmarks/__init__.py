"""The scripts behind every measured number, and their records."""
