"""Units, their overrides and journal, and servers that are plain processes."""
