"""Which messages of an engine's start-up code the catalogue knows: `python -m tests.sources.coverage NAME=FOLDER …`.

NAME is an engine (vllm, sglang, trtllm, llamacpp, ollama, tgi), FOLDER its package or source. `--list N` prints the N most
severe messages that have no entry. See "Tested against the engines' code" in docs/diagnosis.md.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from ddtop.sources.log.first_cause import is_configuration
from ddtop.sources.log.signatures import match_line
from tests.sources.templates import Template, collect

RANK = {"raise": 0, "error": 1, "warning": 2}


def answer(template: Template) -> str:
    """``entry`` (the catalogue names it), ``own words`` (an exception of a kind that the same start raises again: its own words
    are the answer, and it is not tried again) or ``none``."""
    if any(m.signature.role != "marker" for m in match_line(template.line)):
        return "entry"
    return "own words" if template.name and is_configuration(template.name, template.line) else "none"


def covered(templates: list[Template]) -> dict[str, Counter[str]]:
    """How many templates got which answer, by kind of statement."""
    table: dict[str, Counter[str]] = {kind: Counter() for kind in RANK}
    for template in templates:
        table[template.kind][answer(template)] += 1
    return table


def open_ones(templates: list[Template]) -> list[Template]:
    """Templates without an answer, the most severe first."""
    return sorted((t for t in templates if answer(t) == "none"), key=lambda t: (RANK[t.kind], t.where))


def as_markdown(rows: dict[str, dict[str, Counter[str]]]) -> str:
    """The table of the report: one row for each engine and kind of statement."""
    lines = [
        "| engine | statement | messages | with an entry | own words | none |",
        "|---|---|---|---|---|---|",
    ]
    for name, table in rows.items():
        for kind, count in table.items():
            if total := sum(count.values()):
                cells = (str(total), *(str(count[a]) for a in ("entry", "own words", "none")))
                lines.append(f"| {name} | {kind} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table, and with `--list` the messages without an entry."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", nargs="+", help="NAME=FOLDER")
    parser.add_argument("--list", type=int, default=0, metavar="N")
    parser.add_argument(
        "--own-words", action="store_true", help="list those that the generic answer covers, too"
    )
    given = parser.parse_args()
    rows, missing = {}, {}
    for item in given.package:
        name, _, folder = item.partition("=")
        templates = collect(Path(folder))
        rows[name] = covered(templates)
        missing[name] = (
            [t for t in templates if answer(t) != "entry"] if given.own_words else open_ones(templates)
        )
    print(as_markdown(rows))
    for name, templates in missing.items():
        for template in templates[: given.list]:
            print(f"{name} {template.kind:7} {template.where}\t{template.line[:300]}")


if __name__ == "__main__":
    main()
