"""Charts of a recording as frozen values: which points, axes with units and round ticks, reference lines. Pure; two rooms draw them."""
