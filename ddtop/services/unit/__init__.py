"""What the state of a systemd unit or container means."""
