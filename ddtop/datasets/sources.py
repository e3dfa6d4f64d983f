"""The datasets that ddtop knows: where each is, which revision, its hash, its licence and its reader."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from ddtop.datasets import readers
from ddtop.datasets.readers import Reader
from ddtop.errors import UsageError

GITHUB = "https://raw.githubusercontent.com"
HUGGING_FACE = "https://huggingface.co/datasets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One dataset. `url` is of one revision for ever; empty: it cannot be fetched whole (`how` says what to do)."""

    name: str
    what: str
    reader: Reader
    revision: str
    url: str = ""
    sha256: str = ""
    """Of the file as published; empty: not known, so that of the file that was brought is kept."""
    licence: str
    shareable: bool = True
    """Whether its licence lets the texts be given away, in a recording or a bundle."""
    how: str = ""
    skip: bool = False
    """Rows without a prompt are left out, not an error."""


SPEED_BENCH = tuple(
    Source(
        name=f"speed-bench:{part}",
        what=what,
        reader=readers.turns,
        revision="as prepared",
        licence="NVIDIA Evaluation Dataset License (evaluation only, not to be given away)",
        shareable=False,
        how="published with placeholders for texts of others: let prepare_data.py of NVIDIA Model-Optimizer "
        f"(examples/specdec_bench) fill them in, then: ddtop dataset fetch speed-bench:{part} --from FILE.jsonl",
    )
    for part, what in (
        ("qualitative", "880 prompts in 11 categories, for acceptance by category"),
        *(
            (f"throughput_{size}", f"1,536 prompts of about {size} tokens, in 3 classes of entropy")
            for size in ("1k", "2k", "8k", "16k", "32k")
        ),
    )
)

SOURCES: tuple[Source, ...] = (
    *SPEED_BENCH,
    Source(
        name="spec-bench",
        what="480 prompts in 13 categories: MT-Bench's, translation, summaries, questions, mathematics, RAG",
        reader=readers.turns,
        revision="fd2c1cd7d2201ef71db4c5f4e455008f017967bf",
        url=f"{GITHUB}/hemingkx/Spec-Bench/fd2c1cd7d2201ef71db4c5f4e455008f017967bf/data/spec_bench/question.jsonl",
        sha256="4b6d33e79484f9841c487ee87d1cf6aa8c6066f61d5d482ff09e5a007fafdf04",
        licence="Apache-2.0",
    ),
    Source(
        name="humaneval",
        what="164 beginnings of Python functions",
        reader=readers.humaneval,
        revision="6d43fb980f9fee3c892a914eda09951f772ad10d",
        url=f"{GITHUB}/openai/human-eval/6d43fb980f9fee3c892a914eda09951f772ad10d/data/HumanEval.jsonl.gz",
        sha256="b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef",
        licence="MIT",
    ),
    Source(
        name="gsm8k",
        what="1,319 school problems in words (the test split)",
        reader=readers.gsm8k,
        revision="3101c7d5072418e28b9008a6636bde82a006892c",
        url=f"{GITHUB}/openai/grade-school-math/3101c7d5072418e28b9008a6636bde82a006892c/grade_school_math/data/test.jsonl",
        sha256="3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
        licence="MIT",
    ),
    Source(
        name="math500",
        what="500 competition problems in 7 subjects, with long reasoning",
        reader=readers.math500,
        revision="6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
        url=f"{HUGGING_FACE}/HuggingFaceH4/MATH-500/resolve/6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be/test.jsonl",
        sha256="35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132",
        licence="MIT",
    ),
    Source(
        name="mt-bench",
        what="80 questions of two turns in 8 categories",
        reader=readers.turns,
        revision="0e6d3e4beaab66f4d3f93db72541a4abab8af28d",
        url=f"{GITHUB}/lm-sys/FastChat/0e6d3e4beaab66f4d3f93db72541a4abab8af28d/fastchat/llm_judge/data/mt_bench/question.jsonl",
        sha256="119565adbab82227089cefdb44c8d7e2cf04dc0a0ec233634c82e7d4e2a944f7",
        licence="Apache-2.0",
    ),
    Source(
        name="sharegpt",
        what="about 90,000 conversations of users (642 MiB)",
        reader=readers.sharegpt,
        revision="192ab2185289094fc556ec8ce5ce1e8e587154ca",
        url=f"{HUGGING_FACE}/anon8231489123/ShareGPT_Vicuna_unfiltered/resolve/192ab2185289094fc556ec8ce5ce1e8e587154ca/"
        "ShareGPT_V3_unfiltered_cleaned_split.json",
        sha256="35f0e213ce091ed9b9af2a1f0755e9d39f9ccec34ab281cd4ca60d70f6479ba4",
        licence="Apache-2.0 by its page; the texts are those of users",
        shareable=False,
        skip=True,
    ),
)

FILE = "file:"
"""Begins the name of a file of one's own; a path relative to the plan."""


def source_of(name: str) -> Source:
    """The source of this name. Raises UsageError with the nearest known one."""
    known = {source.name: source for source in SOURCES}
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, 1, 0.5)
    meant = f"did you mean `{near[0]}`? " if near else ""
    raise UsageError(
        f"there is no dataset `{name}`", do=f"{meant}known: {', '.join(known)}, or {FILE}PATH of your own"
    )
