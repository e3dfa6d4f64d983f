"""Model folders: judged, staged, downloaded."""
