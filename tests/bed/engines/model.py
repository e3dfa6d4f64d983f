"""A tiny model that any engine loads like any other, whose answer at temperature 0 is known before it runs.

A Llama of two layers in two safetensors shards, with a byte-level tokenizer and a chat template. Its weights are set, not
trained: attention and MLP add exactly nothing (their last projections are zero), so the hidden state is the last token's
embedding, and the head's row for `next(t)` is the embedding of `t`. The answer to every prompt is the one cycle `ORDER`."""

from __future__ import annotations

import array
import fcntl
import json
import random
import shutil
import string
import struct
from pathlib import Path

from .install import ENGINES

SPECIAL = ("<|unk|>", "<|bos|>", "<|end|>", "<|pad|>", "<|user|>", "<|assistant|>")
ORDER = string.ascii_lowercase + " " + string.ascii_uppercase + " " + string.digits + ".,;:-"
ROWS, HIDDEN, INNER, LAYERS, HEADS = 320, 256, 512, 2, 4
TEMPLATE = (
    "{% for m in messages %}<|user|>{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
CYCLE = "".join(dict.fromkeys(ORDER))
"""What it says, over and over, after the newline that every chat prompt ends with."""


def answer(tokens: int) -> str:
    """The answer to any chat prompt, so many tokens of it: a token is a character."""
    return (CYCLE * (tokens // len(CYCLE) + 1))[:tokens]


def _letters() -> list[str]:
    """GPT-2's spelling of the 256 bytes: printable ones are themselves, the others are moved above 255."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    moved = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(moved)) for b in range(256)]


def _bf16(values: list[float]) -> bytes:
    """Little-endian bfloat16: the upper halves of float32."""
    whole = array.array("f", values).tobytes()
    return bytes(b for i in range(2, len(whole), 4) for b in whole[i : i + 2])


def _tensors(rng: random.Random) -> list[tuple[str, tuple[int, ...], bytes]]:
    letters = _letters()
    token = {c: len(SPECIAL) + letters.index(letters[ord(c)]) for c in CYCLE}
    said = [token[c] for c in CYCLE]
    follows = dict(zip(said, said[1:] + said[:1], strict=True))
    embed = []
    for row in range(ROWS):
        # What is not in the cycle looks like its last token: the first follows.
        values = [rng.gauss(0, 1) for _ in range(HIDDEN)] if row in follows else []
        size = sum(v * v for v in values) ** 0.5
        embed.append([v / size for v in values])
    embed = [row or embed[said[-1]] for row in embed]
    head = [[0.0] * HIDDEN for _ in range(ROWS)]
    for this, then in follows.items():
        head[then] = [20 * v for v in embed[this]]

    pool = [rng.gauss(0, 0.05) for _ in range(1 << 14)]
    noise = _bf16(pool)

    def random_tensor(name: str, *shape: int) -> tuple[str, tuple[int, ...], bytes]:
        return name, shape, noise * (shape[0] * shape[1] // len(pool))

    found = [("model.embed_tokens.weight", (ROWS, HIDDEN), _bf16([v for row in embed for v in row]))]
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        found += [random_tensor(f"{at}self_attn.{n}_proj.weight", HIDDEN, HIDDEN) for n in "qkv"]
        found += [random_tensor(f"{at}mlp.{n}_proj.weight", INNER, HIDDEN) for n in ("gate", "up")]
        found.append((f"{at}self_attn.o_proj.weight", (HIDDEN, HIDDEN), bytes(2 * HIDDEN * HIDDEN)))
        found.append((f"{at}mlp.down_proj.weight", (HIDDEN, INNER), bytes(2 * HIDDEN * INNER)))
        for norm in ("input_layernorm", "post_attention_layernorm"):
            found.append((f"{at}{norm}.weight", (HIDDEN,), _bf16([1.0] * HIDDEN)))
    found.append(("model.norm.weight", (HIDDEN,), _bf16([1.0] * HIDDEN)))
    found.append(("lm_head.weight", (ROWS, HIDDEN), _bf16([v for row in head for v in row])))
    return found


def _shard(path: Path, tensors: list[tuple[str, tuple[int, ...], bytes]]) -> None:
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape, data in tensors:
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors))


def write(place: Path) -> None:
    """The whole model, into a new folder."""
    place.mkdir(parents=True)

    def put(name: str, value: object) -> None:
        (place / name).write_text(json.dumps(value, indent=1, ensure_ascii=False))

    ids = {word: i for i, word in enumerate([*SPECIAL, *_letters()])}
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    bpe = {"type": "BPE", "vocab": ids, "merges": [], "dropout": None, "unk_token": None, "fuse_unk": False}
    named = dict(zip(("unk_token", "bos_token", "eos_token", "pad_token"), SPECIAL, strict=False))
    put(
        "tokenizer.json",
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [{"id": i, "content": word, **special} for i, word in enumerate(SPECIAL)],
            "normalizer": None,
            "pre_tokenizer": byte_level,
            "post_processor": None,
            "decoder": byte_level,
            "model": {
                **bpe,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "byte_fallback": False,
            },
        },
    )
    put(
        "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **named,
            "model_max_length": 2048,
            "clean_up_tokenization_spaces": False,
            "chat_template": TEMPLATE,
        },
    )
    put("special_tokens_map.json", named)
    put("generation_config.json", {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3})
    put("config.json", CONFIG)
    tensors = _tensors(random.Random(7))
    half, index = len(tensors) // 2, {}
    for number, part in enumerate((tensors[:half], tensors[half:]), 1):
        name = f"model-{number:05d}-of-00002.safetensors"
        _shard(place / name, part)
        index.update({tensor[0]: name for tensor in part})
    size = sum(len(data) for _, _, data in tensors)
    put("model.safetensors.index.json", {"metadata": {"total_size": size}, "weight_map": index})


CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "head_dim": HIDDEN // HEADS,
    "vocab_size": ROWS,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 3,
}
TOKENIZER = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def _spoil(kind: str, place: Path) -> None:
    config = place / "config.json"
    if kind == "no-config":
        config.unlink()
    elif kind == "cut-config":
        config.write_text(config.read_text()[:200])
    elif kind == "bad-architecture":
        config.write_text(json.dumps({**CONFIG, "architectures": ["FooForCausalLM"], "model_type": "foo"}))
    elif kind == "bad-shape":
        config.write_text(json.dumps({**CONFIG, "intermediate_size": 2 * INNER}))
    elif kind == "no-tokenizer":
        for name in TOKENIZER:
            (place / name).unlink()
    elif kind == "truncated":
        shard = place / "model-00002-of-00002.safetensors"
        shard.write_bytes(shard.read_bytes()[:-5000])


SPOILT = ("no-config", "cut-config", "bad-architecture", "bad-shape", "no-tokenizer", "truncated")


def models() -> dict[str, Path]:
    """Name → folder of the model (`known`) and of each spoilt copy; made where they are missing, by one process at a time."""
    place = ENGINES / "models"
    place.mkdir(parents=True, exist_ok=True)
    with (place / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _made(place)


def _made(place: Path) -> dict[str, Path]:
    found = {}
    for kind in ("known", *SPOILT):
        found[kind] = folder = place / kind
        if folder.exists():
            continue
        new = place / f"{kind}.new"
        shutil.rmtree(new, ignore_errors=True)
        if kind == "known":
            write(new)
        else:
            shutil.copytree(found["known"], new)
            _spoil(kind, new)
        new.rename(folder)
    return found
