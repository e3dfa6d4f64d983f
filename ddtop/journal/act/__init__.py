"""What a person may ask of a run: which action becomes which command, when, in which words, and what became of it. Pure."""
