"""Texts of the length that is asked, by the server's own count, and whether they fit into its context: before a cell's window."""

from __future__ import annotations

from typing import Any, Callable, Tuple

from .asked.conversation import Conversations, flat
from .asked.trace import TAG, BlockTexts
from .context_text import corpus, fit_context, random_words
from .engine_calls import context_limit, count_tokens
from .request_builder import RequestBuilder, nonce_for
from .spec import LoadSpec, SpecError
from .warm_up import Tell, open_only, small_spec
from .window.shards import run_shards

FIT_BLOCKS = 16  # of a trace, whose tokens are counted
Server = Tuple[str, "dict[str, str]", str]
"""Base URL, headers, API key."""


def build(spec: LoadSpec, server: Server, result: dict[str, Any], tell: Tell) -> RequestBuilder:
    """The builder of a cell's requests, with texts of the lengths that are asked. Raises SpecError where a conversation, or a
    request of a trace, cannot fit into the server's context."""
    text = shared = ""
    if spec.context or spec.shared_prefix_tokens or spec.context_lengths or spec.replays:
        tell({"phase": "context"})
    source = random_words(corpus(), spec.seed) if spec.context_kind == "random" else corpus()
    if spec.context:
        text, result["context"] = fit_passage(spec, spec.context, source, server, tell)
    if spec.shared_prefix_tokens:
        half, tokens = len(source) // 2, spec.shared_prefix_tokens
        other = source[half:] + source[:half]  # than the context's
        shared, result["shared_prefix"] = fit_passage(spec, tokens, other, server, tell)
        shared = (nonce_for(spec.nonce + "/shared", 0) if spec.nonce else "") + shared
    result["turns"] = max(1, spec.turns)
    builder = RequestBuilder(spec, text, server[2], shared=shared)
    if builder.contexts is not None:  # by the longest one, of which the others are the beginning
        most = max(builder.contexts.of(number) for number in range(spec.conversations))
        about = fit_passage(spec, most, source, server, tell)[1]
        builder.source, result["context"] = source, about
        builder.chars_per_token = about.get("chars", 0) / (about.get("tokens") or most or 1)
    if builder.blocks is not None:
        result["blocks"] = fit_blocks(spec, builder.blocks, server, tell)
    if spec.turns > 1 or spec.replays:
        must_fit(spec, builder, server[0], server[1])
    return builder


def fit_passage(
    spec: LoadSpec, tokens: int, source: str, server: Server, tell: Tell
) -> tuple[str, dict[str, Any]]:
    """Text of so many tokens, and how well it fits. `server`: base URL, headers, API key."""
    count, by = _counter(spec, server, tell)
    text, about = fit_context(tokens, count, source)
    about["by"] = by if "tokens" in about else "guess"
    return text, about


def fit_blocks(spec: LoadSpec, blocks: BlockTexts, server: Server, tell: Tell) -> dict[str, Any]:
    """Make a trace's blocks as long as they stand for, by the server's own count of some of them."""
    count, by = _counter(spec, server, tell)
    about: dict[str, Any] = {"asked": blocks.tokens, "by": "guess"}
    for _ in range(3):
        got = count("".join(blocks.block("fit %d" % number) for number in range(FIT_BLOCKS)))
        if not got:
            return about
        about.update(tokens=got / FIT_BLOCKS, chars=blocks.chars, by=by)
        blocks.chars = max(TAG + 1, round(blocks.chars * blocks.tokens * FIT_BLOCKS / got))
    return about


def _counter(spec: LoadSpec, server: Server, tell: Tell) -> tuple[Callable[[str], int | None], str]:
    """What counts the tokens of a text, and by what: the server's /tokenize, else its count of a prompt."""
    base, headers, key = server

    def by_tokenize(text: str) -> int | None:
        return count_tokens(base, spec.engine, spec.model, text, headers, spec.tls_verify)

    if by_tokenize("a few words") is not None:
        return by_tokenize, "tokenize"
    alone = _prompt_tokens(spec, "", key, tell)

    def by_usage(text: str) -> int | None:
        whole = _prompt_tokens(spec, text, key, tell)
        return None if whole is None or alone is None else whole - alone

    return by_usage, "usage"


def _prompt_tokens(spec: LoadSpec, text: str, key: str, tell: Tell) -> int | None:
    small = small_spec(spec, requests=1, concurrency=1, turns=1, output_tokens=1, exact_tokens=False)
    small.output_lengths, small.context_lengths = {}, {}
    if small.replays:
        small.arrival, small.prompts = "poisson", ["?"]
    out = run_shards(small, RequestBuilder(small, text, key), [0], on_progress=open_only(tell))
    for record in out["requests"]:
        if "prompt_tokens" in record:
            return int(record["prompt_tokens"])
    return None


def must_fit(spec: LoadSpec, builder: RequestBuilder, base: str, headers: dict[str, str]) -> None:
    """Raises SpecError where the longest conversation is certain not to fit into the server's context."""
    limit = context_limit(base, spec.engine, headers, spec.tls_verify)
    if limit is None:
        return
    if spec.replays:
        sizes = [one["input_tokens"] + one["output_tokens"] for one in spec.prompts[: spec.requests]]
        over = [size for size in sizes if size > limit]
        if over:
            raise SpecError(
                "%d of the trace's %d requests take more tokens than the server's context holds (the largest %s of %s):"
                " leave them out of the trace, or start the server with a longer context"
                % (len(over), len(sizes), format(max(over), ","), format(limit, ","))
            )
        return
    said, answers = longest(spec, builder.conversations)
    prompts = count_tokens(base, spec.engine, spec.model, said, headers, spec.tls_verify)
    problem = too_long(spec, prompts or 0, answers, limit)
    if problem:
        raise SpecError(problem)


def longest(spec: LoadSpec, conversations: Conversations) -> tuple[str, int]:
    """(what the user says in all, tokens of the answers) of the longest of the load's conversations. Answers that may end
    early count as nothing, but for the last one: so much room a server needs in any case."""
    best: tuple[int, str, int] = (-1, "", 0)
    for number in range(min(len(spec.prompts), spec.conversations)):
        said, answers = [], 0
        for turn in range(conversations.length(number)):
            prompt = conversations.prompt(number, turn)
            said.append(flat(prompt))
            asked = isinstance(prompt, dict) and prompt.get("output_tokens")
            answers = int(asked or spec.output_tokens) + (answers if spec.exact_tokens else 0)
        text = "\n\n".join(said)
        if len(text) + answers > best[0]:
            best = (len(text) + answers, text, answers)
    return best[1], best[2]


def too_long(spec: LoadSpec, prompts: int, answers: int, limit: int) -> str:
    """What is wrong where a conversation needs more tokens than a server's context holds; "" where it fits."""
    parts = (
        ("shared prefix", spec.shared_prefix_tokens),
        ("context", spec.context),
        ("prompts", prompts),
        ("answers", answers),
    )
    need = sum(tokens for _, tokens in parts)
    if need <= limit:
        return ""
    words = ", ".join("%s %s" % (name, format(tokens, ",")) for name, tokens in parts if tokens)
    return (
        "a conversation of %d turns takes at least %s tokens (%s), and the server's context holds %s:"
        " ask for fewer turns, shorter answers or less context, or start the server with a longer context"
        % (max(1, spec.turns), format(need, ","), words, format(limit, ","))
    )
