"""Random faults at random moments of real sweeps on the test bed, and silent failures one by one, judged from outside ddtop."""
