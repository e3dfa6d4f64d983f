"""What a run does now and what changed in it, and what a person may ask of it: which action becomes which command, when, in which words, and what became of it. Pure."""
