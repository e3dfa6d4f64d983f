"""docs/diagnosis.md says what the program says."""

from __future__ import annotations

import tomllib

from ddtop.services.causes import load_causes
from ddtop.sources.log.signatures import load_catalogue
from tests.inspect.docs import CASES, PAGE, page


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tests.inspect.docs"


def test_it_lists_every_cause() -> None:
    text = page()
    assert [s for s in load_causes().by_slug if f"| `{s}` |" not in text] == []
    told = {tomllib.loads(f.read_text())["cause"] for f in CASES.glob("[BCDE]*/expect.toml")}
    assert [c for c in sorted(told) if f"| `{c}` |" not in text] == []


def test_every_signature_leads_to_a_cause_or_says_why_not() -> None:
    listed = {s.split("@")[0] for c in load_causes().by_slug.values() for s in c.signatures}
    silent = [s.id for s in load_catalogue() if s.role in ("cause", "consequence") and s.id not in listed]
    assert silent == []
