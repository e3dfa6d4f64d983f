"""What a recording shows, in three sentences made from its numbers: what is best, where it does not pay, what is in doubt; and what changed since a moment."""

from ddtop.report.conclusion.conclude import Conclusion, conclude

__all__ = ["Conclusion", "conclude"]
