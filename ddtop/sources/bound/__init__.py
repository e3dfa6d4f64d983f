"""What limits the GPUs: memory, arithmetic, latency, heat, power."""
