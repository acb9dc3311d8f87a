"""Learners: gradient, optimiser and carry as one state, which learns from a stream."""
