"""SIMULATED SGLang: its arguments, log lines, HTTP answers, readiness order and ways to fail. No model runs.

The log forms, counters and `/server_info` are those of a real 0.5.23 (its code and a run of it on a CPU); the fork logs as 0.5.16 did."""
import sys

FORK = sys.prefix.rstrip("/").endswith("ddtree")  # installed in /opt/ddtree: the private build with tree speculation
__version__ = "0.5.16.post1+ddtree" if FORK else "0.5.23"
