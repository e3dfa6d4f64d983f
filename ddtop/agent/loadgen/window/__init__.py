"""The timed window: connections, stamps, shards over processes."""
