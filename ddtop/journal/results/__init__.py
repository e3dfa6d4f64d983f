"""What results say: the matrix of configurations and loads, the best of each load, whether a comparison is sure."""
