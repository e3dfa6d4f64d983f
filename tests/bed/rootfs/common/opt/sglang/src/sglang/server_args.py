"""Arguments: SGLang's names and defaults, what it refuses, and what it silently resolves to something else."""
import argparse, json, random
from pathlib import Path

from . import FORK

# name=default of ServerArgs, in its order (0.5.x); only the first dozen do anything here.
FIELDS = """model_path=None tokenizer_path=None tokenizer_mode='auto' tokenizer_worker_num=1 skip_tokenizer_init=False load_format='auto'
model_loader_extra_config='{}' trust_remote_code=False context_length=None is_embedding=False enable_multimodal=None revision=None model_impl='auto'
host='127.0.0.1' port=30000 fastapi_root_path='' grpc_mode=False skip_server_warmup=False warmups=None nccl_port=None checkpoint_engine_wait_weights_before_ready=False
dtype='auto' quantization=None quantization_param_path=None kv_cache_dtype='auto' enable_fp32_lm_head=False modelopt_quant=None mem_fraction_static=0.88
max_running_requests=None max_queued_requests=None max_total_tokens=None chunked_prefill_size=8192 max_prefill_tokens=16384 schedule_policy='fcfs'
enable_priority_scheduling=False schedule_conservativeness=1.0 page_size=1 swa_full_tokens_ratio=0.8 disable_hybrid_swa_memory=False radix_eviction_policy='lru'
device='cuda' tp_size=1 pp_size=1 pp_max_micro_batch_size=None stream_interval=1 stream_output=False random_seed=None constrained_json_whitespace_pattern=None
watchdog_timeout=300 dist_timeout=None download_dir=None base_gpu_id=0 gpu_id_step=1 sleep_on_idle=False custom_sigquit_handler=None log_level='info' log_level_http=None
log_requests=False log_requests_level=2 crash_dump_folder=None show_time_cost=False enable_metrics=False enable_metrics_for_all_schedulers=False
tokenizer_metrics_custom_labels_header='x-custom-labels' bucket_time_to_first_token=None collect_tokens_histogram=False decode_log_interval=40
enable_request_time_stats_logging=False kv_events_config=None enable_trace=False otlp_traces_endpoint='localhost:4317' api_key=None served_model_name=None
weight_version='default' chat_template=None completion_template=None file_storage_path='sglang_storage' enable_cache_report=False reasoning_parser=None
tool_call_parser=None tool_server=None sampling_defaults='model' dp_size=1 load_balance_method='round_robin' dist_init_addr=None nnodes=1 node_rank=0
json_model_override_args='{}' preferred_sampling_params=None enable_lora=None max_lora_rank=None lora_paths=None lora_backend='triton'
attention_backend='flashinfer' decode_attention_backend=None prefill_attention_backend=None sampling_backend='flashinfer' grammar_backend='xgrammar'
mm_attention_backend=None speculative_algorithm=None speculative_draft_model_path=None speculative_draft_model_revision=None speculative_draft_load_format=None
speculative_num_steps=None speculative_eagle_topk=None speculative_num_draft_tokens=None speculative_dflash_block_size=None speculative_draft_window_size=None
speculative_accept_threshold_single=1.0 speculative_accept_threshold_acc=1.0 speculative_token_map=None speculative_attention_mode='prefill'
speculative_draft_attention_backend=None speculative_ngram_min_match_window_size=1 speculative_ngram_max_match_window_size=12
ep_size=1 moe_a2a_backend='none' moe_runner_backend='auto' flashinfer_mxfp4_moe_precision='default' enable_flashinfer_allreduce_fusion=False deepep_mode='auto'
max_mamba_cache_size=None mamba_ssm_dtype='float32' enable_hierarchical_cache=False hicache_ratio=2.0 hicache_size=0 cpu_offload_gb=0 disable_radix_cache=False
cuda_graph_max_bs=None cuda_graph_bs=None disable_cuda_graph=False disable_cuda_graph_padding=False enable_profile_cuda_graph=False enable_cudagraph_gc=False
enable_nccl_nvls=False enable_symm_mem=False disable_flashinfer_cutlass_moe_fp4_allgather=False enable_tokenizer_batch_encode=False disable_outlines_disk_cache=False
disable_custom_all_reduce=False enable_mscclpp=False enable_torch_symm_mem=False disable_overlap_schedule=False enable_mixed_chunk=False enable_dp_attention=False
enable_dp_lm_head=False enable_two_batch_overlap=False enable_torch_compile=False torch_compile_max_bs=32 torchao_config='' enable_nan_detection=False
enable_p2p_check=False triton_attention_reduce_in_fp32=False triton_attention_num_kv_splits=8 num_continuous_decode_steps=1 delete_ckpt_after_loading=False
enable_memory_saver=False allow_auto_truncate=False enable_custom_logit_processor=False flashinfer_mla_disable_ragged=False disable_shared_experts_fusion=False
disaggregation_mode='null' enable_deterministic_inference=False"""
REAL_KEYS = json.loads((Path(__file__).parent / "server_info.json").read_text())
"""Every key of a real 0.5.23's /server_info with the value nobody chose; FIELDS are those that can be given here."""
FORK_FIELDS = "speculative_ddtree_budget=None speculative_ddtree_topk=8"
ALIASES = {"tp_size": ["--tp", "--tensor-parallel-size"], "model_path": ["--model"], "dp_size": ["--dp", "--data-parallel-size"],
           "speculative_draft_model_path": ["--speculative-draft-model"], "ep_size": ["--ep"]}
NUMBERS = {"context_length", "max_running_requests", "max_total_tokens", "random_seed", "cuda_graph_max_bs", "speculative_num_steps",
           "speculative_eagle_topk", "speculative_num_draft_tokens", "speculative_dflash_block_size", "speculative_draft_window_size",
           "speculative_ddtree_budget", "max_queued_requests"}
ALGORITHMS = ("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "DFLASH", "DSPARK") + (("DDTREE",) if FORK else ())


def parser():
    ap = argparse.ArgumentParser(prog="launch_server.py", allow_abbrev=False)
    for pair in (FIELDS + (" " + FORK_FIELDS if FORK else "")).split():
        name, default = pair.split("=", 1)
        default = eval(default)
        flags = ["--" + name.replace("_", "-"), *ALIASES.get(name, [])]
        if default is False:
            ap.add_argument(*flags, dest=name, action="store_true")
        else:
            kind = int if name in NUMBERS else str if default is None else type(default)
            ap.add_argument(*flags, dest=name, default=default, type=kind, required=name == "model_path")
    return ap


def resolve(args, warn):
    """As ServerArgs.__post_init__: fills in, overrides with a warning, refuses with a ValueError."""
    args.tokenizer_path = args.tokenizer_path or args.model_path
    args.served_model_name = args.served_model_name or args.model_path
    args.random_seed = random.randint(0, 1 << 30) if args.random_seed is None else args.random_seed
    algorithm = args.speculative_algorithm
    if algorithm and algorithm not in ALGORITHMS:
        raise ValueError(f"Unknown speculative algorithm name: {algorithm}")
    if algorithm == "DFLASH":
        if not args.speculative_draft_model_path:
            raise ValueError("DFLASH requires setting --speculative-draft-model-path.")
        if (args.speculative_eagle_topk or 1) != 1 or (args.speculative_num_steps or 1) != 1:
            warn("DFLASH only supports speculative_eagle_topk == 1 and speculative_num_steps == 1; overriding.")
        args.speculative_eagle_topk = args.speculative_num_steps = 1
        args.speculative_num_draft_tokens = args.speculative_num_draft_tokens or args.speculative_dflash_block_size or 16
    if algorithm == "DDTREE":
        if not args.speculative_ddtree_budget:
            raise ValueError("DDTREE requires setting --speculative-ddtree-budget.")
        args.speculative_num_draft_tokens = args.speculative_ddtree_budget + 1
    if algorithm and args.speculative_num_draft_tokens is None:
        args.speculative_num_draft_tokens = 4
    if algorithm and args.max_running_requests is None:
        args.max_running_requests = 48
        warn("Max running requests is reset to 48 for speculative decoding. You can override this by explicitly setting --max-running-requests.")
    if args.tp_size not in (1, 2, 4, 8):
        raise ValueError(f"Total number of attention heads (64) must be divisible by tensor parallel size ({args.tp_size}).")
    return args


def model_config(path):
    """config.json of a model folder; OSError with transformers' words where there is none."""
    try:
        return json.loads((Path(path) / "config.json").read_text())
    except FileNotFoundError:
        if Path(path).is_dir():
            raise OSError(f"{path} does not appear to have a file named config.json. Checkout 'https://huggingface.co/{path}/tree/main' for available files.") from None
        raise OSError(f"Incorrect path_or_model_id: '{path}'. Please provide either the path to a local folder or the repo_id of a model on the Hub.") from ValueError(
            f"Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{path}'. Use `repo_type` argument if needed.")
