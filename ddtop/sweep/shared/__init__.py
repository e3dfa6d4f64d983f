"""What every room of the sweep shares: the context, the plan as it is run, policy, limits, viewers' requests."""
