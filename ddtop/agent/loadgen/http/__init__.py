"""HTTP/1.1 responses and server-sent events from bytes that arrive in any pieces."""
