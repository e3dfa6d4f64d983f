"""Small tests of the bed itself: what it promises, tried."""
