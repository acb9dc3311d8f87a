"""Estimators for river and sktime."""
