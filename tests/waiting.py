"""How long a test waits for what must come: long enough that only a hang reaches it, on however slow a machine."""

HANG_S = 120.0
