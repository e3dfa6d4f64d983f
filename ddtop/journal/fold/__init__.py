"""Events folded into `State`."""
