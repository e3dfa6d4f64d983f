"""The publication bundle: a run with all that a reviewer asks for, and a checklist of it."""
