"""Plans checked, listed, drafted from a host, and taken from a recording."""
