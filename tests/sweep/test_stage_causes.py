"""Why a model could not be staged, from the words of the job and of `hf download`."""

from __future__ import annotations

import pytest

from ddtop.services.causes import load_causes
from ddtop.sweep.model.stage_causes import stage_cause
from ddtop.sweep.tell.alerts import stage_alert

HF = "/usr/bin/hf download Qwen/Qwen3.6-27B: exit status 1: "


@pytest.mark.parametrize(
    ("error", "slug", "kind"),
    [
        (
            "/dev/shm/M: no room for the model: 52.0 GiB are needed (and 2.0 GiB left free), 40.0 GiB are free",
            "no-space",
            "host",
        ),
        (HF + "OSError: [Errno 28] No space left on device", "no-space", "host"),
        ("there is no hf tool on this host to download with; install it", "no-download-tool", "config"),
        (
            HF
            + "Error: Access denied. This repository requires approval. 401 Client Error. Cannot access gated repo for url",
            "download-not-allowed",
            "config",
        ),
        (
            HF
            + "Error: Repository not found. 404 Client Error. Repository Not Found for url: https://huggingface.co/api/models/x",
            "download-not-found",
            "config",
        ),
        (
            HF
            + "huggingface_hub.errors.LocalEntryNotFoundError: Cannot find an appropriate cached snapshot folder for the specified "
            "revision on the local disk and outgoing traffic has been disabled.",
            "host-offline",
            "host",
        ),
        (HF + "httpx.ConnectError: [Errno -3] Temporary failure in name resolution", "host-offline", "host"),
        (
            HF
            + "requests.exceptions.ConnectionError: ('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))",
            "download-cut",
            "transient",
        ),
        (HF + "HfHubHTTPError: 504 Server Error: Gateway Time-out", "download-cut", "transient"),
        ("no source holds a whole copy: /data/M: restage-needed (no-config)", "no-source", "config"),
        ("the job ended killed", "staging-failed", "host"),
        ("systemd: signal (killed KILL)", "staging-killed", "transient"),  # seed 9505 of the campaign
    ],
)
def test_the_words_name_the_cause(error: str, slug: str, kind: str) -> None:
    found = stage_cause(error)
    assert (found.slug, found.kind) == (slug, kind)
    row = load_causes().by_slug[slug]
    assert row.kind == kind
    alert = stage_alert("ct200", "/dev/shm/M", error, "a1")
    assert (alert.verdict, alert.cause, alert.kind) == ("staging-failed", slug, kind)
    assert error in alert.cause_text and alert.advice == found.advice
