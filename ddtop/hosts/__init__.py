"""Reaching a machine: transports to the agent, its other end, reconnecting, and the SSH configuration."""
