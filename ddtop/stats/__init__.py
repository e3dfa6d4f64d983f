"""Statistics of measurements repeated over starts: spread, intervals, which differences count. Pure; imports nothing of ddtop."""
