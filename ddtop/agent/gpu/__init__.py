"""GPU readings through nvidia-smi."""
