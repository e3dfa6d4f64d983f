"""The connection to a host, and what streams over it."""
