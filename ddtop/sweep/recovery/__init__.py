"""After a loss: what the host shows beside what the recording remembers, and putting a host back."""
