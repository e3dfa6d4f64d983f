"""ddtop: live benchmarking of LLM inference servers on remote GPU hosts, on one screen or none."""

__version__ = "0.1.0"
