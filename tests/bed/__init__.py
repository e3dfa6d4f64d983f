"""The test bed: two GPU hosts that are real Debian systems (systemd, journald, sshd) on this machine.

`python -m tests.bed --help` drives it by hand, `client.Bed` from Python, README.md says how it works.
"""
