"""What nvidia-smi prints, in each of its forms, read into values."""
