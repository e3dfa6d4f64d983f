"""Datasets of prompts by category: fetched, checked by hash, read into one form. None is shipped with ddtop."""
