"""What shows how far a start is: its log, its phases, what moves, and GPUs that spin without moving anything."""
