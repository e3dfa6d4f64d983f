"""One cell, from the request to measure it to a committed result."""
