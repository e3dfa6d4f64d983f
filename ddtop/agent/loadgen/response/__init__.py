"""One request's response: its raw bytes with stamps, and what they said."""
