"""Several devices, several processes."""
