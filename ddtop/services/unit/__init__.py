"""What systemctl, docker inspect and ss say about a unit, and the verdict on it."""
