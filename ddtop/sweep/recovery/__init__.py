"""After a loss: what the host shows compared with the recording, and putting a host back."""
