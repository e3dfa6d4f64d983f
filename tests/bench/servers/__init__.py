"""Servers that behave in one exactly known way, for trying clients on. Own code; they say SIMULATED in their model list."""
