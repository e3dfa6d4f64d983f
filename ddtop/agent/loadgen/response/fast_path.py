"""The shape that nearly every read of a benchmark has, taken in one regular expression: one HTTP chunk with one event with
one piece of text, keys in the order SGLang, vLLM and llama.cpp write them. Anything else takes the general way.

It must never say anything else than the general way would: a test compares the two. It saves three quarters of the
parsing, which counts where the generator shares a machine with the server.
"""

from __future__ import annotations

import json
import re

from ..http.http1 import ResponseReader
from ..http.sse import SseParser
from .account import Account

ONE_CHUNK = re.compile(
    rb"([0-9a-fA-F]{1,6})\r\n"
    rb'(data: \{"id":"[^"\\]*","object":"(?:chat\.completion\.chunk|text_completion)","created":\d+,"model":"[^"\\]*",'
    rb'"choices":\[\{"index":0,'
    rb'(?:"delta":\{(?:"role":null,)?"content":"((?:[^"\\]|\\.)+)"(?:,"reasoning_content":null|,"tool_calls":null)*\}'
    rb'|"text":"((?:[^"\\]|\\.)+)")'
    rb'(?:,"logprobs":null|,"matched_stop":null|,"stop_reason":null|,"token_ids":null)*'
    rb',"finish_reason":null'
    rb'(?:,"logprobs":null|,"matched_stop":null|,"stop_reason":null|,"token_ids":null)*\}\]'
    rb'(?:,"usage":\{"prompt_tokens":(\d{1,9}),(?:"total_tokens":\d+,)?"completion_tokens":(\d{1,9})'
    rb'(?:,"total_tokens":\d+)?(?:,"prompt_tokens_details":null)?\})?'
    rb'(?:,"stamp": *\d+)?\}\n\n)\r\n'
)


def take(data: bytes, stamp: int, reader: ResponseReader, parser: SseParser, account: Account) -> bool:
    """Take one read if it has exactly that shape; False leaves everything as it was."""
    found = ONE_CHUNK.fullmatch(data)
    if found is None or not reader.between_chunks or not parser.idle:
        return False
    size, event, chat, completion, prompt, count = found.groups()
    if int(size, 16) != len(event):
        return False
    raw = chat if chat is not None else completion
    try:
        text = raw.decode("utf-8")
        if b"\\" in raw:
            text = json.loads('"' + text + '"')
    except ValueError:
        return False
    return account.plain_chunk(
        text, stamp, None if prompt is None else int(prompt), None if count is None else int(count)
    )
