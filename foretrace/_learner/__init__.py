"""Gradient, optimiser and carry as one state that a stream is fed to."""
