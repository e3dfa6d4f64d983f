"""What a load asks, request by request: turns of a conversation, drawn lengths, a trace. Pure."""
