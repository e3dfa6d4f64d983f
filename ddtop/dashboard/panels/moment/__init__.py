"""The panel that follows the moment: a start, a measurement, a failure, or what is waited for."""
