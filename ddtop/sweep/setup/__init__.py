"""Before the first step: a checked plan made ready, rights looked at, what earlier runs taught."""
