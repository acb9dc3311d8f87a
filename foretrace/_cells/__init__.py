"""The architectures: one file each, nothing but the one-step recurrence."""
