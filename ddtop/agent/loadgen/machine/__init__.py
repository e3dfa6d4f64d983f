"""What the machine did during a cell: GPUs, and what the generator was denied."""
