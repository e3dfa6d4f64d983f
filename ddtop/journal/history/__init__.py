"""What outlives a run: learned durations, broken cells, causes seen."""
