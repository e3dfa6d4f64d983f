"""Throughput, acceptance length and the like, from a server's log or its responses."""
