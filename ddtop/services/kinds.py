"""Which service runs the kind that a plan names (`[service] kind`, plan/model.py SERVICE_KINDS)."""

from __future__ import annotations

from ddtop.services.base import Service
from ddtop.services.command import CommandService
from ddtop.services.docker import DockerService
from ddtop.services.process import ProcessService
from ddtop.services.systemd import SystemdService

OUTSIDE_SYSTEMD = frozenset({"process", "docker"})
"""Kinds whose `unit` is not a systemd unit, so that systemctl does not know it."""


def service_for(unit: str, kind: str, *, user: bool = False) -> Service:
    """The service that runs `unit`; a systemd unit for any kind not named here."""
    if kind == "process":
        return ProcessService(unit)
    if kind == "docker":
        return DockerService(unit)
    if kind == "command":
        return CommandService(unit, user=user)
    return SystemdService(unit, user=user)
