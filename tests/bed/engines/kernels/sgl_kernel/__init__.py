"""Stands in for SGLang's compiled kernels, which the package index has for GPUs only: pure torch, for plain Llama models.

Everything else of the server is the real thing: its arguments, scheduler, log, counters and HTTP side. What a dense model
without AMX asks for on a CPU is below; any other kernel is importable and raises NotImplementedError when it is called.
`DDTOP_KERNEL_FAULT=<name>` makes that kernel fail with a CUDA error's words, so that a scheduler dies at its first decode.
"""

from __future__ import annotations

import ctypes
import importlib.abc
import importlib.util
import os
import sys

import torch

__version__ = "0.4.10"


def _rows(*tensors):
    return zip(*(t.tolist() for t in tensors))


def _fault(name):
    if os.environ.get("DDTOP_KERNEL_FAULT") == name:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


def assign_req_to_token_pool_cpu(
    req_pool_indices, req_to_token, start_offset, end_offset, out_cache_loc, pool_len
):
    """Writes the cache locations of each request's new tokens into its row of the table."""
    _fault("assign_req_to_token_pool_cpu")
    done = 0
    for row, start, end in _rows(req_pool_indices, start_offset, end_offset):
        req_to_token[row, start:end] = out_cache_loc[done : done + end - start].to(req_to_token.dtype)
        done += end - start


def assign_extend_cache_locs_cpu(
    req_pool_indices, req_to_token, start_offset, end_offset, out_cache_loc, pool_len
):
    """The other way round: reads them out of the table."""
    done = 0
    for row, start, end in _rows(req_pool_indices, start_offset, end_offset):
        out_cache_loc[done : done + end - start] = req_to_token[row, start:end].to(out_cache_loc.dtype)
        done += end - start


def fill_accept_out_cache_loc_cpu(accept_index, out_cache_loc, accept_out_cache_loc, size=None):
    """The cache locations of accepted tokens, packed; -1 is none."""
    chosen = [i for i in accept_index.flatten().tolist() if i >= 0]
    if chosen:
        accept_out_cache_loc[: len(chosen)] = out_cache_loc[chosen]


def verify_tree_greedy_cpu(
    predicts,
    accept_index,
    accept_token_num,
    candidates,
    retrive_index,
    retrive_next_token,
    retrive_next_sibling,
    target_predict,
):
    """From the root of each draft tree along those children that are the target's own choice."""
    longest = accept_index.shape[1]
    for batch in range(candidates.shape[0]):
        node, steps = 0, 0
        accept_index[batch, 0] = retrive_index[batch, 0]
        while True:
            choice = int(target_predict[batch, node])
            predicts[int(retrive_index[batch, node])] = choice
            follower = int(retrive_next_token[batch, node])
            while follower >= 0 and int(candidates[batch, follower]) != choice:
                follower = int(retrive_next_sibling[batch, follower])
            if follower < 0 or steps + 1 >= longest:
                break
            steps, node = steps + 1, follower
            accept_index[batch, steps] = retrive_index[batch, node]
        accept_token_num[batch] = steps


def copy_all_layer_kv_cache_cpu(data_ptrs, strides, tgt_loc, src_loc):
    """Moves rows of every layer's cache; all are read before the first is written."""
    to, of = tgt_loc.tolist(), src_loc.tolist()
    for base, stride in _rows(data_ptrs, strides):
        held = [ctypes.string_at(base + row * stride, stride) for row in of]
        for row, data in zip(to, held):
            ctypes.memmove(base + row * stride, data, stride)


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def kernel(*_args, **_named):
        raise NotImplementedError(f"{name}: no stand-in for this kernel")

    return kernel


class _VerifyLengths(importlib.abc.MetaPathFinder):
    """The `torch_native` attention has no verify step: its extend step is given the lengths that a verify step lacks.

    A draft tree is then read as a chain, which is right for chains and for a model whose attention adds nothing."""

    module = "sglang.srt.layers.attention.torch_native_backend"

    def find_spec(self, name, path=None, target=None):
        if name != self.module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            of = module.TorchNativeAttnBackend
            original = of._run_sdpa_forward_extend

            def extend(
                self, query, out, keys, values, table, requests, lengths, prefixes, extends, *more, **named
            ):
                if prefixes is None:
                    drafted = query.shape[0] // lengths.shape[0]
                    prefixes, extends = lengths, torch.full_like(lengths, drafted)
                    lengths = lengths + drafted
                return original(
                    self,
                    query,
                    out,
                    keys,
                    values,
                    table,
                    requests,
                    lengths,
                    prefixes,
                    extends,
                    *more,
                    **named,
                )

            of._run_sdpa_forward_extend = extend

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, _VerifyLengths())
