"""What shows how far a start is: its log, its phases, what moves, and GPUs that are busy while nothing moves."""
