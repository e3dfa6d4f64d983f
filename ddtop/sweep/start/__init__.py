"""One start of a server, from the call to ready or to a verdict."""
