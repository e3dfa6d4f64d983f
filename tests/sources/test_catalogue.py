"""Every signature fires on its own sample, holds its anchors, has a cause, and is silent on healthy logs."""

from __future__ import annotations

import re

import pytest

from ddtop.services.causes import load_causes
from ddtop.sources.log.signatures import ROLES, anchor_table, gate_table, load_catalogue, match_line
from tests.sources.healthy import LOGS

CATALOGUE = load_catalogue()


@pytest.mark.parametrize("signature", CATALOGUE, ids=lambda s: s.id)
def test_signature_names_its_own_sample(signature) -> None:
    found = match_line(signature.sample)
    assert signature.id in [m.signature.id for m in found]
    assert any(anchor in signature.sample for anchor in signature.anchors)
    assert signature.role in ROLES and signature.cause and signature.source
    prefixed = match_line(
        f"(Worker_TP3 pid=4242) ERROR 06-30 13:53:19 [core.py:515] {signature.sample.strip()}"
    )
    if not signature.regex.pattern.startswith("^"):
        assert signature.id in [m.signature.id for m in prefixed]


@pytest.mark.parametrize("signature", CATALOGUE, ids=lambda s: s.id)
def test_signature_has_its_place_in_the_table_of_causes(signature) -> None:
    table = load_causes()
    slugs = {slug for sid, slug in table.by_signature.items() if sid.split("@")[0] == signature.id}
    if signature.role in ("pointer", "marker"):
        assert all(
            table.by_slug[s].verdict in ("starting", "failed", "crash-looping", "stopped") for s in slugs
        )
    else:
        assert slugs, "a signature that can decide must name a cause"
        bad = (
            "failed not-started crash-looping"
            if signature.role in ("cause", "consequence")
            else "degraded stalled starting partial"
        )
        assert all(table.by_slug[s].verdict in bad.split() for s in slugs)
    assert signature.advice or slugs, "without advice of its own, it needs a cause that has some"
    assert signature.advice not in {table.by_slug[s].advice for s in slugs}, "said once, in causes.toml"


def test_ids_are_unique_and_every_id_in_the_table_of_causes_exists() -> None:
    ids = [s.id for s in CATALOGUE]
    assert len(ids) == len(set(ids)) > 120
    assert {sid.split("@")[0] for sid in load_causes().by_signature} <= set(ids)


@pytest.mark.parametrize("name", LOGS)
def test_no_failure_fires_on_a_healthy_log(name: str) -> None:
    fired = [
        (m.signature.id, line)
        for line in LOGS[name].splitlines()
        for m in match_line(line)
        if m.signature.role != "marker"
    ]
    assert fired == []


def test_the_same_line_of_two_causes_names_the_more_exact_one_first() -> None:
    line = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 95.00 GiB of "
        "which 1.00 GiB is free. Process 812 has 89.10 GiB memory in use. Including non-PyTorch memory, this process has 5.10 GiB memory in use."
    )
    assert [m.signature.id for m in match_line(line)][:2] == ["oom-foreign", "oom-torch"]
    assert (
        next(
            m.signature.id
            for m in match_line("Worker proc W-3 died unexpectedly (exit code: -9), shutting down executor.")
        )
        == "vllm-worker-died-9"
    )


def test_engine_restricts_only_the_other_engines() -> None:
    line = "ValueError: No available memory for the cache blocks."
    assert [m.signature.id for m in match_line(line, "vllm")] == ["vllm-no-kv"]
    assert match_line(line, "sglang") == ()
    assert match_line("NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.", "sglang")


@pytest.mark.parametrize(
    ("code", "signature"),
    [
        (13, "xid-app"),
        (31, "xid-app"),
        (94, "xid-app"),
        (63, "xid-warn"),
        (92, "xid-warn"),
        (45, "xid-exit"),
        (79, "xid-host"),
        (119, "xid-host"),
        (145, "xid-host"),
        (999, "xid-host"),
    ],
)
def test_xid_codes_go_to_their_kind(code: int, signature: str) -> None:
    found = [
        m.signature.id
        for m in match_line(f"kernel: NVRM: Xid (PCI:0000:41:00): {code}, pid=12, name=python3, text")
    ]
    assert [f for f in found if f.startswith("xid")] == [signature]


def test_anchors_are_literal_parts_of_their_regex() -> None:
    """A line that matches must hold an anchor; tried on the regex's own text, blanks and escapes removed."""
    for signature in CATALOGUE:
        plain = re.sub(r"\\(.)", r"\1", signature.regex.pattern)
        for anchor in signature.anchors:
            assert anchor in plain, (signature.id, anchor)
    assert sum(len(positions) for _, positions in anchor_table()) >= len(CATALOGUE)


def test_a_megabyte_line_is_examined_at_both_ends_only() -> None:
    assert match_line("x" * 1_000_000 + " CUDA error: an illegal memory access was encountered")
    assert match_line("CUDA error: an illegal memory access was encountered" + "x" * 1_000_000)


def test_the_gates_hold_every_anchor_once() -> None:
    anchors = [anchor for gram, group in gate_table() for anchor, _ in group]
    assert sorted(anchors) == sorted(anchor for anchor, _ in anchor_table())
    assert all(gram in anchor for gram, group in gate_table() for anchor, _ in group)
    assert len(gate_table()) < len(anchors) / 2
