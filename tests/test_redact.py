"""What counts as a secret, and that nothing else is taken for one."""

from __future__ import annotations

from typing import Any

import pytest

from ddtop.redact import HIDDEN, hide, names_secret, secrets_in, without_secrets

KEY = "s3cr3t-value-1"
FOUND: list[tuple[str, Any]] = [
    ("flag and value", ["vllm", "serve", "--api-key", KEY]),
    ("flag with =", ["llama-server", f"--api-key={KEY}"]),
    ("variable of docker", ["docker", "run", "-e", f"HF_TOKEN={KEY}", "image"]),
    ("environment", {"env": {"OPENAI_API_KEY": KEY}}),
    ("arguments of the server", {"resolved_args": {"admin_api_key": KEY, "port": 30000}}),
    ("a log's dump of arguments", f"server_args=ServerArgs(model_path='/m', api_key='{KEY}', port=30000)"),
    ("a URL's password", f"proxy http://user:{KEY}@proxy:3128/"),
    ("a header", f"Authorization: Bearer {KEY}"),
    ("a command line in a log", f"exec vllm serve /m --api-key {KEY} --port 8000"),
    ("a list in a log", f"args: ['vllm', 'serve', '--api-key', '{KEY}', '--port', '8000']"),
    ("a plan", f'command = ["srv", "--api-key",\n  "{KEY}", "--port", "1"]'),
    ("JSON inside text", '{"api_key": "' + KEY + '"}'),
    ("JSON inside JSON", '{\\"api_key\\": \\"' + KEY + '\\"}'),
    ("its form alone", "downloading with hf_" + "a" * 30),
    ("a token in prose", "token: abcdef0123456789"),
]
NONE: list[tuple[str, Any]] = [
    (
        "figures of tokens",
        "Decode batch, #running-req: 8, #token: 81920, token usage: 0.44, gen throughput (token/s): 612.3",
    ),
    ("prose", "input token throughput, output token latency; unexpected token: something-odd"),
    ("tokenizer", ["--tokenizer-path", "/models/some-tokenizer", "--max-total-tokens", "163840"]),
    ("special tokens", {"eos_token": "<|im_end|>special", "bos_token_id": "151643000"}),
    ("metrics", {"j_per_token": 1.25, "ttft_ms": {"p50": 41.5}}),
    ("a list of flags", "flags: --api-key, --ssl-keyfile, eos_token, next-word"),
    ("nothing set", "ServerArgs(api_key=None, hf_token=null, admin_api_key='')"),
    ("a variable's name", ["--api-key", "$API_KEY_OF_HOST"]),
    ("keys that are none", {"restart_key": "3f2a9c0d1e2f", "key": "retry-this", "cell_id": "abcdefabcdef"}),
]


@pytest.mark.parametrize("value", [v for _, v in FOUND], ids=[n for n, _ in FOUND])
def test_secrets_are_found_and_left_out(value: Any) -> None:
    secrets = secrets_in(value)
    assert len(secrets) == 1
    shown = repr(without_secrets(value))
    assert HIDDEN in shown
    assert not any(one in shown for one in secrets)


@pytest.mark.parametrize("value", [v for _, v in NONE], ids=[n for n, _ in NONE])
def test_what_is_no_secret_stays(value: Any) -> None:
    assert secrets_in(value) == set()
    assert without_secrets(value) == value


def test_the_longest_goes_first() -> None:
    assert hide("abcdefgh abcdef", {"abcdef", "abcdefgh"}) == f"{HIDDEN} {HIDDEN}"


@pytest.mark.parametrize("name", ["restart_key", "prompt_tokens", "ssl-keyfile", "monkey", "tokens", "key"])
def test_names_that_are_none(name: str) -> None:
    assert not names_secret(name)
