"""A run watched and steered by the command line alone: status, wait, do, log, cells."""
