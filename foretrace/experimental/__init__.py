"""Features that have not shown their gain yet. Nothing in the core imports them but `_credit` and the scan registry."""
