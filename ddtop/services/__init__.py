"""How a server process is run: systemd, process, command, docker, behind one protocol."""
