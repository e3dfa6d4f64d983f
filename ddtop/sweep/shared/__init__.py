"""What every room of the sweep shares: the context, the plan as the sweep uses it, policy, limits, people's requests."""
