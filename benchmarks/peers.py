"""The same load by other tools, on the same stamping server, in one run: TTFT as reported less as it was, delivered share,
CPU a chunk, memory, wall time around the measured part, start to first request.

    python benchmarks/peers.py --peers DIR [--tools ddtop,rust,…] [--streams 16,64,256] [--pin]

DIR holds what the peers need (nothing of it belongs to the repository); a tool whose part is missing is left out:
    DIR/sg     a venv with aiohttp msgspec numpy orjson requests tqdm transformers pillow pybase64 datasets psutil pyzmq
               tokenizers, and DIR/sgx the unpacked sglang wheel (its Python benchmark is run with two stub modules,
               because the package itself wants torch)                          → "rust", "sglang"
    DIR/ai     a venv with aiperf                                               → "aiperf"
    DIR/gu     a venv with guidellm                                             → "guidellm"
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from common import ROOT, Stampd, build_stampd, machine, pinned, run_counted, save, truth_figures

TTFT_MS, DT_MS, TOKENS, ROUNDS = 100.0, 20.0, 100, 3

STUB = """
import os, runpy, sys, types
for name in ("sglang", "sglang.srt", "sglang.srt.utils", "sglang.srt.disaggregation"):
    module = types.ModuleType(name)
    module.__path__ = [os.path.join(os.environ["SGX"], *name.split("."))]
    sys.modules[name] = module
fake = types.ModuleType("sglang.srt.disaggregation.utils")
fake.FAKE_BOOTSTRAP_HOST = "2.2.2.2"
sys.modules[fake.__name__] = fake
sys.path.insert(0, os.environ["SGX"])
sys.argv = ["serving"] + sys.argv[1:]
runpy.run_module("sglang.benchmark.serving", run_name="__main__")
"""
RUST = """
import importlib.util, os, sys
path = os.environ["BENCH_SO"]
spec = importlib.util.spec_from_file_location("_bench", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.run_argv(["sglang-bench"] + sys.argv[1:])
"""


def make_tokenizer(folder: Path, python: str) -> str:
    """A small byte-level BPE tokenizer trained on the shipped corpus: the peers will not run without one."""
    script = """
import json, sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
folder, corpus = sys.argv[1:3]
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.train([corpus], trainers.BpeTrainer(vocab_size=2000, special_tokens=["<s>", "</s>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
tokenizer.save(folder + "/tokenizer.json")
chat = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\\n{% endfor %}"
config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>", "model_max_length": 131072, "chat_template": chat}
json.dump(config, open(folder + "/tokenizer_config.json", "w"))
json.dump({"bos_token": "<s>", "eos_token": "</s>", "pad_token": "</s>"}, open(folder + "/special_tokens_map.json", "w"))
json.dump({"model_type": "gpt2", "vocab_size": 2000, "max_position_embeddings": 131072}, open(folder + "/config.json", "w"))
"""
    tok = folder / "tokenizer"
    tok.mkdir(exist_ok=True)
    done = run_counted([python, "-c", script, str(tok), str(ROOT / "ddtop/agent/loadgen/corpus.txt")])
    if done["rc"]:
        raise SystemExit("no tokenizer: " + done["output"][-2000:])
    return str(tok)


def sglang_flags(url: str, tok: str, streams: int, requests: int, tokens: int, out: str) -> list[str]:
    flags = [
        "--backend",
        "sglang-oai-chat",
        "--base-url",
        url,
        "--model",
        "mock",
        "--tokenizer",
        tok,
        "--dataset-name",
        "random-ids",
    ]
    flags += [
        "--num-prompts",
        str(requests),
        "--random-input-len",
        "200",
        "--random-output-len",
        str(tokens),
        "--random-range-ratio",
        "1",
    ]
    return [
        *flags,
        "--max-concurrency",
        str(streams),
        "--output-file",
        out,
        "--output-details",
        "--disable-tqdm",
    ]


class Tools:
    """How each tool is started and how its report is read; `argv` is None if it is not there."""

    def __init__(self, peers: Path, work: Path, tok: str) -> None:
        self.peers, self.work, self.tok = peers, work, tok

    def argv(
        self, tool: str, url: str, streams: int, requests: int, tokens: int
    ) -> tuple[list[str], dict[str, str]] | None:
        env = dict(os.environ)
        env.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HOME=str(self.work))
        out = str(self.work / f"{tool}.out")
        for old in (out, out + ".json"):  # a tool that fails must not be read by what it wrote before
            Path(old).unlink(missing_ok=True)
        shutil.rmtree(out + ".d", ignore_errors=True)
        if tool.startswith("ddtop"):
            how = {"ddtop": "keep-alive", "ddtop-cold-start": "cold-start"}[tool]
            cell = {
                "id": "p",
                "url": url,
                "model": "mock",
                "prompts": ["word " * 200],
                "concurrency": streams,
                "requests": requests,
                "output_tokens": tokens,
                "gpus": "none",
                "connections": how,
            }
            (self.work / "job.json").write_text(json.dumps({"schema": 1, "cells": [cell]}))
            (self.work / "cell-p.json").unlink(missing_ok=True)
            return [
                sys.executable,
                "-m",
                "ddtop.agent.loadgen",
                str(self.work / "job.json"),
                str(self.work),
            ], env
        if tool == "rust":
            found = glob.glob(str(self.peers / "sgx/sglang/srt/rust_extensions/_bench.*.so"))
            env["BENCH_SO"] = found[0] if found else ""
            flags = sglang_flags(url, self.tok, streams, requests, tokens, out)
            return ([str(self.peers / "sg/bin/python"), "-c", RUST, *flags], env) if found else None
        if tool == "sglang":
            env["SGX"] = str(self.peers / "sgx")
            flags = [*sglang_flags(url, self.tok, streams, requests, tokens, out), "--warmup-requests", "0"]
            return (
                ([str(self.peers / "sg/bin/python"), "-c", STUB, *flags], env)
                if (self.peers / "sgx").exists()
                else None
            )
        if tool == "aiperf":
            exe = self.peers / "ai/bin/aiperf"
            env.pop("HF_HUB_OFFLINE")  # with it an absolute tokenizer path is refused
            env["PATH"] = f"{exe.parent}:{env['PATH']}"
            argv = [
                str(exe),
                "profile",
                "-m",
                "mock",
                "-u",
                url,
                "--endpoint-type",
                "chat",
                "--streaming",
                "--concurrency",
                str(streams),
            ]
            argv += [
                "--request-count",
                str(requests),
                "--isl",
                "200",
                "--osl",
                str(tokens),
                "--tokenizer",
                self.tok,
                "--ui",
                "none",
            ]
            argv += [
                "--output-artifact-dir",
                out + ".d",
                "--extra-inputs",
                "ignore_eos:true",
                "--use-server-token-count",
            ]
            return (argv, env) if exe.exists() else None
        if tool == "guidellm":
            exe = self.peers / "gu/bin/guidellm"
            env["GUIDELLM__MAX_WORKER_PROCESSES"] = "2"
            argv = [
                str(exe),
                "run",
                "--backend",
                f"kind=openai_http,target={url},model=mock",
                "--profile",
                f"kind=concurrent,streams={streams}",
            ]
            argv += [
                "--constraint",
                f"kind=max_requests,count={requests}",
                "--tokenizer",
                f"kind=huggingface_auto,model={self.tok}",
            ]
            argv += [
                "--data",
                f"kind=synthetic_text,prompt_tokens=200,output_tokens={tokens}",
                "--data-loader",
                "kind=pytorch,prefetch_factor=16",
            ]
            argv += ["--output", f"kind=json,path={out}.json", "--disable-progress"]
            return (argv, env) if exe.exists() else None
        raise SystemExit(f"no such tool: {tool}")

    def reported(self, tool: str) -> dict[str, Any]:
        """What the tool itself reports, read by our own importers (and for ddtop by its own judge)."""
        from ddtop.bench.importers import diagnose_results
        from ddtop.bench.judge.cell import judge_cell

        out = str(self.work / f"{tool}.out")
        try:
            if tool.startswith("ddtop"):
                judged = judge_cell(json.loads((self.work / "cell-p.json").read_text()))
                m = judged.metrics
                picked = {
                    "requests_ok": m["requests_ok"],
                    "requests_failed": m["requests_failed"],
                    "output_tps": m.get("output_tok_s"),
                    "validity": judged.validity,
                    "reasons": list(judged.reasons),
                }
                for name, key in (("ttft", "ttft_ms"), ("itl", "itl_ms"), ("tpot", "tpot_ms")):
                    for p in ("mean", "p50", "p99"):
                        picked[f"{name}_{p}_ms"] = (m.get(key) or {}).get(p)
                return picked
            path = {"aiperf": out + ".d/profile_export_aiperf.json", "guidellm": out + ".json"}.get(tool, out)
            got = diagnose_results(Path(path))
        except (OSError, KeyError) as error:
            return {"error": f"{type(error).__name__}: {error}"}
        names = (
            "ttft_mean_ms",
            "ttft_p50_ms",
            "ttft_p99_ms",
            "itl_mean_ms",
            "itl_p50_ms",
            "itl_reported",
            "tpot_mean_ms",
            "output_tps",
        )
        names += ("peak_output_tps", "peak_reported", "requests_ok", "requests_failed", "verdict", "cause")
        return {name: got[name] for name in names if name in got}


def measure(
    tools: Tools,
    tool: str,
    server: Stampd,
    streams: int,
    pin: bool,
    tokens: int = TOKENS,
    rounds: int = ROUNDS,
    timeout_s: float = 240,
) -> dict[str, Any] | None:
    """One tool, one number of streams."""
    server.dump()
    found = tools.argv(tool, server.url, streams, streams * rounds, tokens)
    if found is None:
        return None
    argv, env = found
    # aiperf and guidellm are several processes with heartbeats: they deadlock under FIFO on one core
    argv = pinned(argv, 0, 10, pin and tool not in ("aiperf", "guidellm"))
    run = run_counted(
        argv, env=env, cwd=str(ROOT) if tool.startswith("ddtop") else str(tools.work), timeout_s=timeout_s
    )
    truth = [one for one in server.dump() if one["asked"] == tokens]  # not the tools' own small warm-up
    ideal = TTFT_MS / 1e3 + DT_MS / 2e3 + (tokens - 1) * DT_MS / 1e3
    true = truth_figures(truth, ideal, rounds, run["started_ns"])
    said = tools.reported(tool)
    out = {
        "rc": run["rc"],
        "wall_s": run["wall_s"],
        "cpu_s": run["cpu_s"],
        "max_rss_mib": run["max_rss_mib"],
        "true": true,
        "reported": said,
    }
    if true["requests"]:
        out["wall_around_s"] = run["wall_s"] - true["span_s"]
        out["cpu_us_per_chunk"] = run["cpu_s"] * 1e6 / true["chunks"]
        for p in ("p50", "p99"):
            if said.get(f"ttft_{p}_ms") is not None:
                out[f"ttft_{p}_bias_ms"] = said[f"ttft_{p}_ms"] - true[f"ttft_{p}_ms"]
    if run["rc"]:
        out["tail"] = run["output"][-1500:]
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peers", type=Path, required=True)
    parser.add_argument("--tools", default="ddtop,ddtop-cold-start,rust,sglang,aiperf,guidellm")
    parser.add_argument("--streams", default="16,64,256")
    parser.add_argument("--pin", action="store_true")
    parser.add_argument("--out", default="peers.json")
    options = parser.parse_args()
    binary = build_stampd()
    tools = Tools(
        options.peers.resolve(),
        binary.parent,
        make_tokenizer(binary.parent, str(options.peers / "sg/bin/python")),
    )
    result: dict[str, Any] = {"machine": machine(), "pinned": options.pin, "runs": {}}
    with Stampd(binary, options.pin, ttft_us=TTFT_MS * 1e3, dt_us=DT_MS * 1e3, step=1) as server:
        for streams in map(int, options.streams.split(",")):
            for tool in options.tools.split(","):
                got = measure(tools, tool, server, streams, options.pin)
                if got is None:
                    print(f"{tool}: not installed")
                    continue
                got["load_average"] = os.getloadavg()[0]
                result["runs"].setdefault(str(streams), {})[tool] = got
                keys = (
                    "rc",
                    "ttft_p50_bias_ms",
                    "ttft_p99_bias_ms",
                    "cpu_us_per_chunk",
                    "max_rss_mib",
                    "wall_around_s",
                )
                print(
                    streams,
                    tool,
                    {k: got.get(k) for k in keys},
                    "delivered",
                    got["true"].get("delivered_share"),
                )
                if got.get("tail"):
                    print(got["tail"][-600:])
    save(options.out, result)


if __name__ == "__main__":
    main()
