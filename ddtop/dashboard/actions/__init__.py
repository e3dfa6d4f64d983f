"""What the keys do."""
