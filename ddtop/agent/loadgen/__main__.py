"""`python -m …loadgen SPEC.json OUT_DIR`: run the cells of a job spec; each is committed to OUT_DIR by itself."""

from __future__ import annotations

import json
import sys

from .cells import run_cells


def main() -> int:
    """Exit 0 if every cell was measured, 1 if some could not be, 2 on wrong usage."""
    if len(sys.argv) != 3:
        sys.stderr.write("usage: loadgen SPEC.json OUT_DIR\n")
        return 2
    try:
        with open(sys.argv[1], encoding="utf-8") as file:
            spec = json.load(file)
    except (OSError, ValueError) as error:
        sys.stderr.write("loadgen: cannot read %s: %s\n" % (sys.argv[1], error))
        return 2
    summary = run_cells(spec, sys.argv[2])
    sys.stdout.write(json.dumps(summary) + "\n")
    return 1 if summary["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
