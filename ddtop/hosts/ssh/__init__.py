"""Hosts over SSH: settings, keys, the connection, and why one fails."""
