"""The forms journalctl prints."""
