"""The runner's end of a recording."""
