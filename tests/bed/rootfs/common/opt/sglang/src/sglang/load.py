"""From the command line to a loaded model: SGLang's phases in its words, and the faults that hit them.

LOAD_S=3        seconds of loading                LOAD_AT=0.5  where in the load a fault acts
LOAD_FAULT=exit    an exception at once, status 1    cuda    out of memory half-way (SIGKILL of its own tree)
           hang    half-way, asleep                  spin    half-way, at full CPU
           toolkit FlashInfer refuses the GPU        nccl    collective that never returns: GPU 100 %, low power
           capture graph capture fails               cublas  capture fails with CUBLAS_STATUS_EXECUTION_FAILED
BOOT_PY=FILE   that Python is run before anything is loaded, with `log` and `wait` of this server
PAUSE_S, CAPTURE_S   real seconds in which nothing moves: before the ranks meet, in the capture
"""
import json, os, struct, sys, time
from pathlib import Path

from ddtop_bed import gpu, ledger

from . import FORK, shapes, state
from .server_args import REAL_KEYS, model_config
from .state import claim, die, hang, log, wait

MESSAGES = {
    "toolkit": "RuntimeError: SM 120 requires CUDA >= 12.8",
    "capture": "Exception: Capture cuda graph failed: CUDA error: an illegal instruction was encountered\nPossible solutions:\n"
               "1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)\n2. set --cuda-graph-max-bs to a smaller value (e.g., 16)",
    "cublas": "RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, opa, opb, m, n, k, &falpha, a, CUDA_R_16BF, lda, b, CUDA_R_16BF, ldb, "
              "&fbeta, c, CUDA_R_16BF, ldc, compute_type, CUBLAS_GEMM_DEFAULT_TENSOR_OP)`",
}


def out_of_memory(index, want_gib):
    free, others = gpu.free_mib(index)
    total = gpu.card()["mib"] / 1024
    held = "".join(f" Process {c['pid']} has {c['mib'] / 1024:.2f} GiB memory in use." for c in others)
    return (f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {want_gib:.2f} GiB. GPU {index} has a total capacity of {total:.2f} GiB "
            f"of which {max(0, free) / 1024:.2f} GiB is free.{held}")


def check_shard(path):
    """Open one safetensors file as the library does; its words where it is damaged. Reads every byte."""
    data = path.read_bytes()
    if len(data) < 8:
        return "safetensors_rust.SafetensorError: Error while deserializing header: header too small"
    (length,) = struct.unpack("<Q", data[:8])
    if length > 100_000_000:
        return "safetensors_rust.SafetensorError: Error while deserializing header: header too large"
    if 8 + length > len(data):
        return "safetensors_rust.SafetensorError: Error while deserializing header: invalid header length"
    try:
        header = json.loads(data[8:8 + length])
        end = max(t["data_offsets"][1] for name, t in header.items() if name != "__metadata__")
    except (ValueError, KeyError, TypeError):
        return "safetensors_rust.SafetensorError: Error while deserializing header: invalid JSON in header: EOF while parsing a value at line 1 column 0"
    if len(data) != 8 + length + end:
        return "safetensors_rust.SafetensorError: Error while deserializing header: incomplete metadata, file not fully covered"
    return ""


def shards_of(model):
    """The files the index names, in order; all weights of the folder where there is no index."""
    index = model / "model.safetensors.index.json"
    if index.exists():
        return sorted(set(json.loads(index.read_text())["weight_map"].values()))
    return sorted(p.name for p in model.glob("*.safetensors"))


def bar(done, of, took, seconds, end="", out=sys.stderr):
    """tqdm on a pipe: a carriage return before it and no newline after it until it is full."""
    out.write(f"\rLoading safetensors checkpoint shards: {100 * done // of:3d}% Completed | {done}/{of} "
              f"[00:{took:02.0f}<00:{max(0, seconds - took):02.0f},  {took / max(done, 1):.2f}s/it]{end}")
    out.flush()


def read_weights(path, mib_from, mib_to, seconds, shape):
    """Load one model folder; memory rises with each shard."""
    faults, model = state.FAULTS, Path(path)
    names, start, fault = shards_of(model), time.monotonic(), faults.get("LOAD_FAULT")
    act_at = int(len(names) * faults.get("LOAD_AT", 0.5))
    if not names:
        die("model-missing", f"RuntimeError: Cannot find any model weights with `{path}`")
    for i, name in enumerate(names):
        bar(i, len(names), time.monotonic() - start, seconds, "\n" if shape.lines else "")
        if i == act_at:
            act(fault)
        shape.at_shard(i, len(names))
        try:
            if problem := check_shard(model / name):
                sys.stderr.write("\n")
                die("model-damaged", problem)
        except FileNotFoundError:
            sys.stderr.write("\n")
            die("model-missing", f"FileNotFoundError: No such file or directory: '{model / name}'")
        claim("load", mib_from + (mib_to - mib_from) * (i + 1) / len(names) if shape.memory else mib_from)
        wait(seconds / len(names))
    bar(len(names), len(names), time.monotonic() - start, seconds, "\n")


def act(fault):
    """The load fault, at its place."""
    if fault == "cuda":
        sys.stderr.write("\n")
        die("cuda", out_of_memory(state.GPUS[0], 3.5))
    if fault == "toolkit":
        sys.stderr.write("\n")
        die("toolkit", MESSAGES["toolkit"])
    if fault in ("hang", "spin"):
        if fault == "spin":
            claim("spin", gpu.claims() and next((c["mib"] for c in gpu.claims() if c["pid"] == os.getpid()), 600) or 600)
        hang(fault, spin=fault == "spin")


def load():
    """All of it; returns the MiB held on each GPU when done."""
    args, faults = state.ARGS, state.FAULTS
    card, shape = gpu.card(), shapes.chosen()
    shown = {**vars(args), "api_key": "***" if args.api_key else None}
    told = f"ServerArgs({', '.join(f'{k}={v!r}' for k, v in shown.items())})" if FORK else repr({**REAL_KEYS, **shown})
    log(f"server_args={told}")
    ledger.stamp("args", seed=args.random_seed, start=faults.start)
    if faults.get("BOOT_PY"):
        exec(Path(faults.get("BOOT_PY")).read_text(), {"log": log, "wait": wait})
    if faults.get("LOAD_FAULT") == "exit":
        ledger.stamp("fault", kind="exit", start=faults.start)
        state.refuse("RuntimeError: CUDA error: no kernel image is available for execution on the device")
    try:
        state.MODEL = model_config(args.model_path)
    except OSError as error:
        ledger.stamp("fault", kind="model-missing", start=faults.start)
        state.refuse(words(error))
    state.GPUS = gpu.visible()[args.base_gpu_id:][:args.tp_size]
    if len(state.GPUS) < args.tp_size:
        state.refuse(f"RuntimeError: CUDA error: invalid device ordinal (tp_size={args.tp_size}, {len(state.GPUS)} GPUs visible)")
    wait(0.3)
    seconds, began = faults.get("LOAD_S", 3.0) * shape.load_factor, time.monotonic()
    log("Init torch distributed begin." if FORK else "Init parallel begin.", 0)
    time.sleep(faults.get("PAUSE_S", 0.0))
    claim("load", 600)
    if faults.get("LOAD_FAULT") == "nccl":
        log("sglang is using nccl==2.28.9", 0)
        claim("spin", 620)
        hang("nccl", spin=True)
    shape.at("init")
    log("sglang is using nccl==2.28.9", 0)
    log("Init torch distributed ends. elapsed=0.27 s, mem usage=0.09 GB" if FORK else "Init parallel ends. elapsed=0.27 s", 0)
    if not FORK:
        log("Memory baseline taken. mem usage=0.09 GB", 0)
    gib = state.MODEL.get("simulated_weights_gib", 16)
    weights = gib * 1024 / args.tp_size
    free, _ = gpu.free_mib(state.GPUS[0])
    log(f"Load weight begin. avail mem={free / 1024 - 0.6:.2f} GB", 0)
    if weights + 2048 > free:
        claim("load", min(weights, max(600, free)) * 0.9)
        wait(seconds * 0.5)
        die("oom", out_of_memory(state.GPUS[0], min(weights / 1024 * 0.1, 3.5)))
    read_weights(args.model_path, 600, 600 + weights, seconds, shape)
    shape.at("loaded")
    if args.speculative_draft_model_path:
        draft_gib = 3
        try:
            draft_gib = model_config(args.speculative_draft_model_path).get("simulated_weights_gib", 3)
        except OSError as error:
            ledger.stamp("fault", kind="model-missing", start=faults.start)
            die("model-missing", words(error))
        log(f"Load weight begin. avail mem={(free - weights) / 1024 - 0.6:.2f} GB", 0)
        read_weights(args.speculative_draft_model_path, 600 + weights, 600 + weights + draft_gib * 1024 / args.tp_size, seconds / 10, shapes.PLAIN)
    arch = state.MODEL.get("architectures", ["?"])[0]
    log(f"Load weight end. elapsed={time.monotonic() - began:.2f} s, type={arch}, avail mem={(free - weights) / 1024:.2f} GB, mem usage={weights / 1024:.2f} GB.", 0)
    held = min(card["mib"] * args.mem_fraction_static, free)
    tokens = int((held - weights) * 13)
    log(f"KV Cache is allocated. {'' if FORK else 'dtype: torch.bfloat16, '}#tokens: {tokens}, K size: {(held - weights) / 2048:.2f} GB, V size: {(held - weights) / 2048:.2f} GB", 0)
    claim("idle", held)
    log(f"Memory pool end. avail mem={(card['mib'] - held) / 1024:.2f} GB", 0)
    if not args.disable_cuda_graph:
        capture(held, seconds / 10, card, shape)
    log(f"max_total_num_tokens={tokens}, chunked_prefill_size={args.chunked_prefill_size}, max_prefill_tokens={args.max_prefill_tokens}, "
        f"max_running_requests={args.max_running_requests or 2048}, context_len={context_len()}, available_gpu_mem={(card['mib'] - held) / 1024 - 1:.2f} GB", 0)
    return held + 1400


def words(error):
    """An OSError of model_config as its traceback ends, with what it came from before it."""
    cause = f"huggingface_hub.errors.HFValidationError: {error.__cause__}\n\nThe above exception was the direct cause of the following exception:\n\nTraceback (most recent call last):\n" if error.__cause__ else ""
    return f"{cause}OSError: {error}"


def context_len():
    """Longest request in tokens."""
    return state.ARGS.context_length or state.MODEL.get("max_position_embeddings", 163840)


def capture(held, seconds, card, shape):
    """CUDA graphs: silent but for a bar that has no newline until its end."""
    name = "cuda graph" if FORK else f"target {'verify' if state.ARGS.speculative_algorithm else 'decode'} CUDA graph"
    begins = "This can take up to several minutes." if FORK else f"backend=full, num_tokens_per_req={state.ARGS.speculative_num_draft_tokens or 1},"
    log(f"Capture {name} begin. {begins} avail mem={(card['mib'] - held) / 1024:.2f} GB", 0)
    claim("capture", held + 200)
    fault, began = state.FAULTS.get("LOAD_FAULT"), time.monotonic()
    time.sleep(state.FAULTS.get("CAPTURE_S", 0.0))
    shape.at("capture")
    sizes = [1, 2, 4, 8, 12, 16, 24, 32, 40, 48]
    for i, bs in enumerate(reversed(sizes)):
        sys.stderr.write(f"\rCapturing batches (bs={bs} avail_mem={(card['mib'] - held) / 1024 - 0.1 * i:.2f} GB): {10 * i:3d}%| | {i}/{len(sizes)} [00:00<00:00]")
        if i == 5 and fault in ("capture", "cublas"):
            sys.stderr.write("\n")
            die(fault, MESSAGES[fault], where="init_cuda_graphs", early_pointer=fault == "cublas")
        claim("capture", held + 200 + 120 * i)
        wait(seconds / len(sizes))
    sys.stderr.write(f"\rCapturing batches (bs=1 avail_mem={(card['mib'] - held) / 1024 - 1.2:.2f} GB): 100%| | {len(sizes)}/{len(sizes)} [00:00<00:00]\n")
    sys.stderr.flush()
    log(f"Capture {name} end. {'' if FORK else f'bs={sizes}, '}elapsed={time.monotonic() - began:.2f} s, mem usage=1.20 GB, avail mem={(card['mib'] - held) / 1024 - 1.2:.2f} GB.", 0)
