"""SIMULATED SGLang: its arguments, log lines, HTTP answers, readiness order and ways to fail. No model runs."""
import sys

FORK = sys.prefix.rstrip("/").endswith("ddtree")  # installed in /opt/ddtree: the private build with tree speculation
__version__ = "0.5.16.post1+ddtree" if FORK else "0.5.16.post1"
