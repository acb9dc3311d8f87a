"""Recurrent cells: each file holds one step of one architecture."""
