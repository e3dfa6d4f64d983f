"""What each command of the command line does: wiring between rooms, no decision of its own."""
