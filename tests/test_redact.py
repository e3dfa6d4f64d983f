"""What counts as a secret, and that nothing else is taken for one."""

from __future__ import annotations

from typing import Any

import pytest

from ddtop.redact import HIDDEN, hide, log_line, names_secret, secrets_in, without_secrets

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


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("non-default args: {'model': 'm', 'api_key': ['abcdef123']}", None),
        (
            "server_args=ServerArgs(api_key='abcdef123', port=1)",
            "server_args=ServerArgs(api_key='[removed]', port=1)",
        ),
        ("vllm serve m --api-key abcdef123 --port 1", "vllm serve m --api-key [removed] --port 1"),
        ("HF_TOKEN=abcdef123", "HF_TOKEN=[removed]"),
        ("Authorization: Bearer abcdef123", "Authorization: Bearer [removed]"),
        ("pulling https://me:abcdef123@host/m.git", "pulling https://me:[removed]@host/m.git"),
        ("using hf_AbcdefghijklmnopqrstABCDEF", "using [removed]"),
        (
            "Decode batch. #running-req: 1, #token: 43210, token usage: 0.12, gen throughput (token/s): 12.3",
            "=",
        ),
        ("eos_token='<eos>', pad_token_id=3, max_total_tokens=123456", "="),
        ("AssertionError: key 'model.layers.0.weight' not found", "="),
    ],
)
def test_a_log_line_is_recorded_without_its_secrets(line: str, shown: str | None) -> None:
    got = log_line(line)
    if shown is None:
        assert "abcdef123" not in got
    else:
        assert got == (line if shown == "=" else shown)


def test_a_line_without_a_hint_has_no_secret_to_be_found() -> None:
    """The quick look misses nothing that the long one finds, for every form that it knows."""
    named = (
        "api_key",
        "--api-key",
        "HF_TOKEN",
        "password",
        "secret",
        "credentials",
        "auth_token",
        "private_key",
        "authorization",
    )
    for name in named:
        for text in (
            f"{name}=abcdef123xyz",
            f"{name}='abcdef123xyz'",
            f'"{name}": "abcdef123xyz"',
            f"{name}: abcdef123xyz",
        ):
            assert bool(secrets_in(text)) == (log_line(text) != text), text
    for form in (
        "hf_" + "a1" * 10,
        "sk-" + "a1" * 10,
        "ghp_" + "a1" * 12,
        "glpat-" + "a1" * 9,
        "AKIA" + "A1" * 7,
        "nvapi-" + "a1" * 12,
    ):
        assert log_line(f"x {form} y") == "x [removed] y"


def test_the_agent_leaves_out_every_name_that_is_secret_here() -> None:
    from ddtop.agent.provenance import SECRET

    for name in (
        "VLLM_API_KEY",
        "SGLANG_ADMIN_KEY",
        "HF_TOKEN",
        "HF_ACCESS_KEY",
        "RAY_PASSPHRASE",
        "RAY_PASSWD",
        "UCX_SECRET",
        "HF_AUTHORIZATION",
        "TRITON_CREDENTIAL",
        "RAY_PRIVATE_KEY",
        "VLLM_APIKEY",
    ):
        assert names_secret(name) and SECRET.search(name), name


@pytest.mark.parametrize(
    "form",
    ["{}=V", "{}: V", "{}:V", "{} = V", "({}='V')", "{{'{}': 'V'}}", '{{"{}": "V"}}', "--{} V", "--{}\tV"],
)
@pytest.mark.parametrize(
    "name", ["token", "TOKEN", "hf_token", "auth.token", "token_value", "api.key", "adminkey", "accesskey", "private_key", "password"]
)  # fmt: skip
def test_a_log_line_hides_all_that_is_found_elsewhere(form: str, name: str) -> None:
    line = form.format(name).replace("V", "Zq8LmN4tRw7XyB2c")
    assert log_line(line) == hide(line, secrets_in(line))
    assert "Zq8LmN4tRw7XyB2c" not in log_line(line)


@pytest.mark.parametrize(
    "line",
    [
        "Decode batch. #running-req: 8, #token: 4096, token usage: 0.93, gen throughput (token/s): 812.11, #queue-req: 0",
        "max_total_num_tokens=450000, chunked_prefill_size=8192, eos_token_id=151645, pad_token='<|endoftext|>'",
        "KeyError: 'model.layers.0.weight'",
    ],
)
def test_a_log_line_without_a_secret_stays(line: str) -> None:
    assert log_line(line) == line


def test_a_long_log_line_is_looked_at_once() -> None:
    for word in ("token", "token_", "-token", "x"):
        assert log_line(word * 20_000) == word * 20_000


V = "Zq8LmN4tRw7XyB2c"
FORMS: list[tuple[str, str]] = [
    # (a line, the same as it is shown; V is the secret)
    ("auth_key=V", "auth_key=[removed]"),
    ("signing_key: V", "signing_key: [removed]"),
    ("subscription-key=V, port=1", "subscription-key=[removed], port=1"),
    ("srv --key V --port 1", "srv --key [removed] --port 1"),
    ("srv --key=V", "srv --key=[removed]"),
    ("['srv', '--key', 'V']", "['srv', '--key', '[removed]']"),
    ("hf_token => V", "hf_token => [removed]"),
    (":api_key=>'V'", ":api_key=>'[removed]'"),
    ("hf_token := V", "hf_token := [removed]"),
    ("hf_token -> V", "hf_token -> [removed]"),
    ("api_key == 'V'", "api_key == '[removed]'"),
    ("using API key: V", "using API key: [removed]"),
    ("password='correct horse battery'", "password='[removed]'"),
    ("api_key='ab,cdef12'", "api_key='[removed]'"),
    ('"password": "it\'s me,9"', '"password": "[removed]"'),
    ("db_pwd=V", "db_pwd=[removed]"),
    ("Authorization: Basic V", "Authorization: Basic [removed]"),
    ("Authorization: Bearer abcdefgh", "Authorization: Bearer [removed]"),
    ("'Authorization': 'Token V'", "'Authorization': 'Token [removed]'"),
    ("sent Basic dXNlcjpodW50ZXIyMg== to it", "sent Basic [removed] to it"),
    ("got bearer V", "got bearer [removed]"),
    ("GET /v1?key=V&n=1 200", "GET /v1?key=[removed]&n=1 200"),
    ("GET /v1?token=V&n=1 200", "GET /v1?token=[removed]&n=1 200"),
    ("https://x/y?X-Amz-Signature=V&a=b", "https://x/y?X-Amz-Signature=[removed]&a=b"),
    ("Cookie: sid=V; b=2", "Cookie: [removed]"),
    (
        "post https://hooks.slack.com/services/T0AB12/B0CD34/V",
        "post https://hooks.slack.com/services/[removed]",
    ),
    ("using AIzaSyA1234567890abcdefghijklmnopqrstu ok", "using [removed] ok"),
    # what is none
    ("401: Basic authentication is required", "="),
    ("401: Bearer authentication required; Bearer AuthenticationScheme is unknown", "="),
    ("basic usage: see README; basic_auth=false", "="),
    ("--key /etc/tls/server.key --ssl-keyfile /etc/tls/other.pem", "="),
    ("KeyError: 'key' => 'layers.0.weight'", "="),
    ("cache_key=3f2a9c0d1e2f4455 restart_key=aa11bb22cc33dd44 key=layers.10.attn", "="),
    ("partition key: block_12345678901", "="),
    ("API key: missing", "="),
    ("token -> 151643, next_token -> 42", "="),
    ("unexpected token: something-odd; secret=None, password=***", "="),
    ("forward_pass=12345678 first pass: complete", "="),
    ("OLDPWD=/root/model-a PWD=/root/model-b", "="),
    ("the password is wrong; tokens=123456; num_keys=1234567", "="),
    ("asia-east1: 200 OK; signature: unknown", "="),
]


@pytest.mark.parametrize(("line", "shown"), FORMS, ids=[line for line, _ in FORMS])
def test_each_form_is_shown_as_it_should_be(line: str, shown: str) -> None:
    line = line.replace("V", V) if shown != "=" else line
    want = line if shown == "=" else shown
    assert log_line(line) == want
    assert hide(line, secrets_in(line)) == want, "a bundle leaves out the same"


def test_a_phrase_under_the_name_of_a_secret_is_left_out() -> None:
    assert without_secrets({"password": "correct horse battery"}) == {"password": HIDDEN}
    assert without_secrets({"token": "unexpected end of the line"}) == {"token": "unexpected end of the line"}
    assert without_secrets(["srv", "--key", V, "--key", "/etc/tls/server.key"])[2:] == [
        HIDDEN,
        "--key",
        "/etc/tls/server.key",
    ]


def test_a_line_of_many_secrets_is_looked_at_once() -> None:
    """Each was looked for in all of the line: 20,000 of them took minutes."""
    line = " ".join(f"api_key=abcdef{n:08d}x" for n in range(20_000))
    shown = log_line(line)
    assert shown == " ".join(["api_key=[removed]"] * 20_000)
    for hard in ("&a=" * 20_000, "password='" * 20_000, "key =" * 20_000, "token->" * 20_000, '\\"' * 20_000):
        log_line("secret " + hard)
