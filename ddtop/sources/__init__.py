"""What a host says, turned into typed readings: GPUs, logs, services. Sources hold no opinions on the
sweep."""
