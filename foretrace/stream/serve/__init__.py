"""A service for one run, with rows and labels by HTTP: what is answered is on the disk."""
