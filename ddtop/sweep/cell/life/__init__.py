"""Whether the server that is measured lives: what comes from it, how long it may be silent, and what it still does."""
