"""Figures a server tells, in its log or when it is asked."""
