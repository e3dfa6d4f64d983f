"""Logs of servers on which nothing failed: no signature of a failure may fire on any of their lines."""

from __future__ import annotations

SGLANG = """\
INFO 03-10 16:19:26 __init__.py:190] Automatically detected platform cuda.
[2026-04-27 02:35:54] server_args=ServerArgs(model_path='Qwen/Qwen3-8B', watchdog_timeout=300, trust_remote_code=True, disable_cuda_graph=False, speculative_algorithm=None)
[2026-04-27 02:36:03 TP0] Init torch distributed begin.
[2026-04-27 02:36:03 TP0] sglang is using nccl==2.28.9
[2026-04-27 02:36:03 TP0] Init torch distributed ends. elapsed=0.27 s, mem usage=0.09 GB
[2026-04-27 02:36:04 TP0] Ignore import error when loading sglang.srt.models.mindspore: No module is needed
[2026-04-27 02:36:04 TP0] Load weight begin. avail mem=177.57 GB
[2026-04-27 02:36:04 TP0] Using model weights format ['*.safetensors']
Multi-thread loading shards: 100% Completed | 5/5 [00:01<00:00,  3.08it/s]
[2026-04-27 02:36:06 TP0] Load weight end. elapsed=1.97 s, type=Qwen3ForCausalLM, avail mem=162.30 GB, mem usage=15.28 GB.
[2026-04-27 02:36:06 TP0] KV Cache is allocated. #tokens: 992896, K size: 68.18 GB, V size: 68.18 GB
[2026-04-27 02:36:06 TP0] Memory pool end. avail mem=25.26 GB
[2026-04-27 02:36:06 TP0] Capture cuda graph begin. This can take up to several minutes. avail mem=24.14 GB
Capturing batches (bs=1 avail_mem=23.54 GB): 100%|██████████| 52/52 [00:03<00:00, 16.76it/s]
[2026-04-27 02:36:09 TP0] Registering 1311 cuda graph addresses
[2026-04-27 02:36:09 TP0] Capture cuda graph end. Time elapsed: 3.74 s. mem usage=0.60 GB. avail mem=23.54 GB.
[2026-04-27 02:36:28 TP0] max_total_num_tokens=992896, chunked_prefill_size=16384, max_prefill_tokens=16384, max_running_requests=2048, context_len=40960, available_gpu_mem=21.22 GB
[2026-04-27 02:36:29] INFO:     Started server process [1029]
[2026-04-27 02:36:29] INFO:     Waiting for application startup.
[2026-04-27 02:36:29] INFO:     Application startup complete.
[2026-04-27 02:36:29] INFO:     Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)
[2026-04-27 02:36:30] INFO:     127.0.0.1:58460 - "GET /model_info HTTP/1.1" 200 OK
[2026-04-27 02:36:30 TP0] Prefill batch, #new-seq: 1, #new-token: 64, #cached-token: 0, token usage: 0.00, #running-req: 0, #queue-req: 0
[2026-04-27 02:36:30] INFO:     127.0.0.1:58476 - "POST /generate HTTP/1.1" 200 OK
[2026-04-27 02:36:30] The server is fired up and ready to roll!
[2026-04-27 02:36:40 TP0] Decode batch, #running-req: 1, #token: 512, token usage: 0.00, accept len: 4.10, accept rate: 0.21, cuda graph: True, gen throughput (token/s): 201.00, #queue-req: 0
[2026-04-27 02:36:50] INFO:     127.0.0.1:58482 - "POST /v1/chat/completions HTTP/1.1" 200 OK
"""

VLLM = """\
(APIServer pid=1) INFO 09-01 09:58:00 [utils.py:233] non-default args: {'host': '0.0.0.0', 'port': 5000, 'model': '/dev/shm/m', 'tensor_parallel_size': 2}
(EngineCore_DP0 pid=12) INFO 09-01 09:58:10 [core.py:140] Initializing a V1 LLM engine (v0.33.0) with config: model='/dev/shm/m'
(Worker_TP0 pid=20) INFO 09-01 09:58:14 [pynccl.py:70] vLLM is using nccl==2.28.9
(Worker_TP0 pid=20) INFO 09-01 09:58:15 [gpu_model_runner.py:4979] Starting to load model /dev/shm/m...
Loading safetensors checkpoint shards: 100% Completed | 3/3 [00:51<00:00, 17.24s/it]
(Worker_TP0 pid=20) INFO 09-01 09:59:02 [default_loader.py:384] Loading weights took 51.88 seconds
(Worker_TP0 pid=20) INFO 09-01 09:59:03 [gpu_model_runner.py:4820] Model loading took 13.5 GiB memory and 54.145678 seconds
(Worker_TP0 pid=20) INFO 09-01 09:59:05 [backends.py:418] Using cache directory: /root/.cache/vllm/torch_compile_cache/x/rank_0_0/ for vLLM's torch.compile
(Worker_TP0 pid=20) INFO 09-01 09:59:15 [backends.py:440] Dynamo bytecode transform time: 8.02 s
(Worker_TP0 pid=20) INFO 09-01 09:59:35 [monitor.py:34] torch.compile took 28.20 s in total
(Worker_TP0 pid=20) INFO 09-01 09:59:40 [gpu_worker.py:255] Available KV cache memory: 18.83 GiB
(EngineCore_DP0 pid=12) INFO 09-01 09:59:40 [kv_cache_utils.py:833] GPU KV cache size: 176,240 tokens
(EngineCore_DP0 pid=12) INFO 09-01 09:59:40 [kv_cache_utils.py:837] Maximum concurrency for 8,192 tokens per request: 21.51x
Capturing CUDA graphs (mixed prefill-decode, PIECEWISE): 100%|##########| 51/51 [00:04<00:00, 11.11it/s]
(Worker_TP0 pid=20) INFO 09-01 09:59:52 [gpu_model_runner.py:6517] Graph capturing finished in 12 secs, took 1.20 GiB
(EngineCore_DP0 pid=12) INFO 09-01 10:00:00 [core.py:193] init engine (profile, create kv cache, warmup model) took 41.20 s (compilation: 20.10 s)
(APIServer pid=1) INFO 09-01 10:00:01 [entry.py:139] Starting vLLM server on http://0.0.0.0:5000
(APIServer pid=1) INFO:     Started server process [1]
(APIServer pid=1) INFO:     Waiting for application startup.
(APIServer pid=1) INFO:     Application startup complete.
(APIServer pid=1) INFO 09-01 10:00:10 [loggers.py:283] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%
(APIServer pid=1) INFO 09-01 10:00:20 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 2.37, Accepted throughput: 8.90 tokens/s, Drafted throughput: 97.50 tokens/s, Accepted: 89 tokens, Drafted: 975 tokens, Per-position acceptance rate: 0.600, 0.385, Avg Draft acceptance rate: 9.1%
(APIServer pid=1) INFO:     192.0.2.1:37016 - "POST /v1/chat/completions HTTP/1.1" 200 OK
"""

LLAMA = """\
build: 6512 (6cdabe65) with cc (Debian 12.2.0) 12.2.0 for x86_64-linux-gnu
main: HTTP server is listening, hostname: 127.0.0.1, port: 8080, http threads: 11
main: loading model
srv    load_model: loading model '/models/m.gguf'
llama_model_loader: loaded meta data with 36 key-value pairs and 197 tensors from /models/m.gguf (version GGUF V3 (latest))
llama_kv_cache:        CPU KV buffer size =   180.00 MiB
common_init_from_params: warming up the model with an empty run - please wait ... (--no-warmup to disable)
main: model loaded
main: server is listening on http://127.0.0.1:8080 - starting the main loop
srv  update_slots: all slots are idle
slot print_timing: id  0 | task 0 | prompt eval time =     300.11 ms /    20 tokens (   15.01 ms per token,    66.64 tokens per second)
slot print_timing: id  0 | task 0 |        eval time =    2296.72 ms /   256 tokens (    8.97 ms per token,   111.46 tokens per second)
slot      release: id  0 | task 0 | stop processing: n_tokens = 275, truncated = 0
srv  log_server_r: done request: POST /v1/chat/completions 127.0.0.1 200
"""

TRTLLM = """\
[TensorRT-LLM] TensorRT LLM version: 1.2.0
[11/20/2026-09:12:01] [TRT-LLM] [I] Using LLM with PyTorch backend
[11/20/2026-09:12:01] [TRT-LLM] [W] Using default gpus_per_node: 8
[11/20/2026-09:12:02] [TRT-LLM] [I] Set nccl_plugin to None.
rank 0 using MpiPoolSession to spawn MPI processes
[11/20/2026-09:12:20] [TRT-LLM] [RANK 0] [I] ATTENTION RUNTIME FEATURES: 
[11/20/2026-09:12:21] [TRT-LLM] [RANK 0] [I] Prefetching 15.26GB checkpoint files.
Loading safetensors weights in parallel: 100%|██████████| 4/4 [00:02<00:00,  1.71it/s]
Loading weights concurrently: 100%|██████████| 617/617 [00:05<00:00, 120.05it/s]
[11/20/2026-09:12:31] [TRT-LLM] [RANK 0] [I] Use 15.04 GB for model weights.
[11/20/2026-09:12:33] [TRT-LLM] [RANK 0] [I] Memory used after loading model weights (inside torch) in memory usage profiling: 15.04 GiB
[TensorRT-LLM][INFO] Max KV cache blocks per sequence: 1281 [window size=40961], tokens per block=32, primary blocks=26115, secondary blocks=0
[TensorRT-LLM][INFO] [MemUsageChange] Allocated 114.77 GiB for max tokens in paged KV cache (835680).
[TensorRT-LLM][WARNING] Attention workspace size is not enough, increase the size from 0 bytes to 67462144 bytes
[11/20/2026-09:12:36] [TRT-LLM] [RANK 0] [I] [Autotuner] Autotuning process starts ...
[11/20/2026-09:12:40] [TRT-LLM] [RANK 0] [I] [Autotuner] Autotuning process ends
[11/20/2026-09:12:41] [TRT-LLM] [RANK 0] [I] Creating CUDA graph instances for 34 batch sizes.
[11/20/2026-09:12:52] [TRT-LLM] [I] get signal from executor worker
INFO:     Started server process [812]
INFO:     Waiting for application startup.
INFO:     Application startup complete.
INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)
INFO:     127.0.0.1:51234 - "POST /v1/chat/completions HTTP/1.1" 200 OK
[11/20/2026-09:13:10] [TRT-LLM] [RANK 0] [I] iter = 12, global_rank = 0, rank = 0, currank_total_requests = 0/0, host_step_time = 5.9ms, elapsed_time = 0.00512s, timestamp = 2026-11-20 09:13:10, num_scheduled_requests: 4, states = {'num_ctx_requests': 0, 'num_ctx_tokens': 0, 'num_generation_tokens': 4}
"""

OLLAMA = """\
time=2026-11-20T10:00:00.001Z level=INFO source=routes.go:1671 msg="server config" env="map[CUDA_VISIBLE_DEVICES: OLLAMA_LOAD_TIMEOUT:5m0s OLLAMA_KV_CACHE_TYPE:]"
time=2026-11-20T10:00:00.002Z level=INFO source=images.go:518 msg="total blobs: 12"
time=2026-11-20T10:00:00.003Z level=INFO source=routes.go:1725 msg="Listening on 127.0.0.1:11434 (version 0.14.2)"
time=2026-11-20T10:00:00.004Z level=INFO source=runner.go:67 msg="discovering available GPUs..."
time=2026-11-20T10:00:01.100Z level=INFO source=types.go:42 msg="inference compute" id=GPU-00000000 library=CUDA compute=9.0 name=CUDA0 description="NVIDIA H200" total="139.8 GiB" available="139.2 GiB"
[GIN] 2026/11/20 - 10:01:00 | 200 |      31.2µs |       127.0.0.1 | HEAD     "/"
time=2026-11-20T10:01:00.200Z level=INFO source=server.go:392 msg="starting runner" cmd="/usr/bin/ollama runner --ollama-engine --model /root/.ollama/models/blobs/sha256-00 --port 36183"
time=2026-11-20T10:01:00.300Z level=INFO source=server.go:1251 msg="waiting for llama runner to start responding"
time=2026-11-20T10:01:00.301Z level=INFO source=server.go:1285 msg="waiting for server to become available" status="llm server loading model"
load_tensors: offloaded 37/37 layers to GPU
time=2026-11-20T10:01:04.000Z level=INFO source=server.go:1289 msg="llama runner started in 3.80 seconds"
[GIN] 2026/11/20 - 10:01:09 | 200 |  9.120338194s |       127.0.0.1 | POST     "/api/chat"
"""

TGI = """\
2026-11-20T10:00:00.000001Z  INFO text_generation_launcher: Args { model_id: "/data/m", revision: None, num_shard: Some(2) }
2026-11-20T10:00:00.200001Z  INFO download: text_generation_launcher: Starting check and download process for /data/m
2026-11-20T10:00:03.000001Z  INFO text_generation_launcher: Files are already present on the host. Skipping download.
2026-11-20T10:00:03.400001Z  INFO download: text_generation_launcher: Successfully downloaded weights for /data/m
2026-11-20T10:00:03.400002Z  INFO shard-manager: text_generation_launcher: Starting shard rank=0
2026-11-20T10:00:13.400002Z  INFO shard-manager: text_generation_launcher: Waiting for shard to be ready... rank=0
2026-11-20T10:00:20.100002Z  INFO shard-manager: text_generation_launcher: Shard ready in 16.7s rank=0
2026-11-20T10:00:20.200001Z  INFO text_generation_launcher: Starting Webserver
2026-11-20T10:00:20.300001Z  INFO text_generation_router_v3: backends/v3/src/lib.rs:125: Warming up model
2026-11-20T10:00:24.000001Z  INFO text_generation_router_v3: backends/v3/src/lib.rs:137: Setting max batch total tokens to 212736
2026-11-20T10:00:24.100001Z  WARN text_generation_router::server: router/src/server.rs:1652: Invalid hostname, defaulting to 0.0.0.0
2026-11-20T10:00:24.200001Z  INFO text_generation_router::server: router/src/server.rs:2402: Connected
"""

SYSTEMD = """\
Starting llm-server.service - LLM inference server...
Started llm-server.service - LLM inference server.
"""

LOGS = {
    "sglang": SGLANG,
    "vllm": VLLM,
    "llamacpp": LLAMA,
    "trtllm": TRTLLM,
    "ollama": OLLAMA,
    "tgi": TGI,
    "systemd": SYSTEMD,
}
