"""The content of every panel as pure functions: view values in, lines out. Nothing here knows Textual."""
