"""`python -m tests.bed.engines [vllm|sglang …]`: build what is missing."""

import sys
import time

from .install import ENGINES, NAMES, build
from .model import models

for engine in sys.argv[1:] or NAMES:
    began = time.monotonic()
    print(f"{engine}: {build(engine)}, {time.monotonic() - began:.0f} s", flush=True)
print(f"models: {', '.join(sorted(models()))}, in {ENGINES / 'models'}")
