"""GPU readings in every form nvidia-smi and NVML give them, and the verdict on them."""
