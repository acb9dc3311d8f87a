"""Learning from rows: real streams, long memories, latency, long runs."""
