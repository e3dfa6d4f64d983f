"""What journalctl prints, read into entries: JSON, export and verbose form."""
