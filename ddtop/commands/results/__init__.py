"""What the results of one recording say: a picture, and advice."""
