"""What runs on the host: standard library only, Python 3.8 or newer; imports nothing else of ddtop."""
