"""Charts of recordings: ticks, what is in a picture, and the two drawers."""
