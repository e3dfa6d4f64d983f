"""What the made-up parts of a test host share: faults, ledger, GPU claims, models."""
