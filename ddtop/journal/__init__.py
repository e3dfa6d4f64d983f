"""Recordings: write events down, read them back, fold them into `State`, follow a file that grows."""
