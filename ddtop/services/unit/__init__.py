"""What the output of systemctl, docker inspect and ss says of a unit, and the verdict on it."""
