"""Processes that outlive a session: how they are launched and supervised."""
