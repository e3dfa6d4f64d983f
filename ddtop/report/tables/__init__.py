"""Tables of one subject each: results per GPU and per user, what servers said of their load, rows of InferenceX."""
