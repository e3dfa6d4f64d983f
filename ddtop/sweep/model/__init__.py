"""Staging a model on the host."""
