"""One configuration: its server brought up, failures decided on, steps taken, the waits between."""
