"""One line of an engine's log, and its dump of arguments."""
