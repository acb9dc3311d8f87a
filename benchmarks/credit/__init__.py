"""Credit depth, and a suite of streamed tasks."""
