"""Small, valid model folders: right layout, exact safetensors sizes, real bytes (no holes), few of them.

`python3 -m ddtop_bed.models HOST ROOT` makes a host's models below ROOT.
"""
import json, random, struct, sys
from pathlib import Path

MODELS = {  # name: shards, bytes a shard, GiB that the server claims on the GPUs, architecture
    "ct200": {"Qwen3.6-27B": (14, 1 << 20, 52, "Qwen3NextForCausalLM"), "Qwen3.6-27B-DFlash": (1, 1 << 18, 3, "DFlashDraftModel")},
    "b300": {"Kimi-K2.6": (64, 1 << 18, 590, "KimiK2ForCausalLM"), "Kimi-K2.6-DFlash": (1, 1 << 18, 6, "DFlashDraftModel")},
}

SMALL = {"Qwen3.6-27B": (2, 1 << 18, 52, "Qwen3NextForCausalLM"), "Qwen3.6-27B-DFlash": (1, 1 << 16, 3, "DFlashDraftModel")}  # on a node of the Slurm cluster


def shard(path, tensors, size, seed):
    """One safetensors file: 8 bytes of length, a JSON header, data of exactly `size` bytes. Returns the tensor names."""
    each, header, at = size // len(tensors) // 2 * 2, {"__metadata__": {"format": "pt"}}, 0
    for name in tensors:
        header[name] = {"dtype": "BF16", "shape": [each // 2], "data_offsets": [at, at + each]}
        at += each
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + random.Random(seed).randbytes(at))
    return at


def make(folder, shards, size, gib, arch):
    folder.mkdir(parents=True, exist_ok=True)
    weight_map, total = {}, 0
    for i in range(1, shards + 1):
        name = "model.safetensors" if shards == 1 else f"model-{i:05d}-of-{shards:05d}.safetensors"
        tensors = [f"model.layers.{i - 1}.self_attn.qkv_proj.weight", f"model.layers.{i - 1}.mlp.experts.weight"]
        total += shard(folder / name, tensors, size, f"{folder.name}{i}")
        weight_map.update(dict.fromkeys(tensors, name))
    if shards > 1:
        (folder / "model.safetensors.index.json").write_text(
            json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=1))
    (folder / "config.json").write_text(json.dumps(
        {"architectures": [arch], "model_type": "fake", "torch_dtype": "bfloat16", "num_hidden_layers": shards,
         "max_position_embeddings": 163840, "vocab_size": 1024, "simulated_weights_gib": gib}, indent=1))
    (folder / "generation_config.json").write_text(json.dumps({"temperature": 1.0, "eos_token_id": 0}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 163840}))
    vocab = {"<eos>": 0, "<unk>": 1, **{chr(c): i + 2 for i, c in enumerate(range(33, 127))}}
    (folder / "tokenizer.json").write_text(json.dumps(
        {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"},
         "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"}}))


def make_all(host, root):
    for name, (shards, size, gib, arch) in MODELS.get(host, SMALL).items():
        make(Path(root) / "data/models" / name, shards, size, gib, arch)


def write_list(root):
    """The list by which a reset sees whether a model was damaged: name and size of each file."""
    data, to = Path(root) / "data/models", Path(root) / "usr/share/ddtop-bed/models.json"
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(json.dumps({str(p.relative_to(data)): p.stat().st_size for p in data.rglob("*") if p.is_file()}))


if __name__ == "__main__":
    make_all(*sys.argv[1:])
    write_list(sys.argv[2])
