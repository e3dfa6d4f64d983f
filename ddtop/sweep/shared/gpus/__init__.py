"""The GPUs of a run: watched, and whether the server uses them."""
