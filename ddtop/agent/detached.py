"""What a detached process is: `python3 -I -S HASH.zip job|job-end|supervise FOLDER`, run from the state folder."""

from __future__ import annotations

import hashlib
import os
import sys
from typing import List


def run_detached(words: List[str]) -> int:
    """The exit code. 76: the zip is not what its name says."""
    zip_path, what, folder = words[0], words[1], words[2]
    with open(zip_path, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    if os.path.basename(zip_path) != digest + ".zip":
        sys.stderr.write("ddtop: %s was changed (its hash is %s): not run\n" % (zip_path, digest))
        return 76
    if what == "job":
        from .jobs.worker import run_job

        return run_job(folder)
    if what == "job-end":
        from .jobs.worker import write_end_of_unit

        return write_end_of_unit(folder)
    from .process.supervise import supervise

    return supervise(folder)
