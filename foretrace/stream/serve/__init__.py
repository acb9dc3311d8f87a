"""A service around one run: rows and labels come by HTTP, and an answer means on disk."""
