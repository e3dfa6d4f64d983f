"""What a panel draws, as plain values."""
