"""What speculation is worth: break-even by concurrency, and which configuration to run at which."""
