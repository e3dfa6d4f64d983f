"""Reading recordings: live, replayed, listed, exported."""
