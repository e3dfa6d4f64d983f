"""Server logs: read, scanned, matched against the catalogue, diagnosed."""
