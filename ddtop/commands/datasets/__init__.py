"""Datasets listed, fetched and shown."""
