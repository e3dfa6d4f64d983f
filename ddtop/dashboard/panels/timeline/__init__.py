"""The run over time: a scale of columns, and the line that is drawn on it."""
