"""Real engines for the stories: vLLM and SGLang on the CPU, a tiny model whose answer is known, and broken copies of it.

`python -m tests.bed.engines` builds them into the bed's cache (`DDTOP_ENGINES` names another folder), each in a Python 3.11
environment of its own: 5.5 GB, about four minutes. A folder that is there is used as it is."""
