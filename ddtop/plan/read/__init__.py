"""TOML text to a checked plan."""
