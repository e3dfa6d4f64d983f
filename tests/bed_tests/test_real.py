"""A real server with a real model: llama.cpp and 135M parameters on the CPU."""

from tests.bed_tests.helpers import get, post, until


def test_the_real_llama_server_answers_with_real_acceptance(ct200):
    ct200.sh("mkdir -p /dev/shm/models && cp -r /data/models/SmolLM2-135M /dev/shm/models/")
    model = "/dev/shm/models/SmolLM2-135M/SmolLM2-135M-Instruct.Q4_1.gguf"
    ct200.sh(
        "systemd-run -q --unit=llama-spec -E PYTHONPATH=/opt/xllamacpp /usr/bin/python3 /opt/real/server.py --host 0.0.0.0 --threads 1 "
        f"--ctx 2048 --model {model} --spec draft_simple --draft-model {model} --draft-max 4"
    )
    until(lambda: get(ct200.spec.ip, "/health")[0] == 200, 30)
    body = {
        "messages": [{"role": "user", "content": "The capital of France is"}],
        "max_tokens": 24,
        "temperature": 0,
    }
    answer = post(ct200.spec.ip, "/v1/chat/completions", body, timeout_s=60)
    assert "Paris" in answer["choices"][0]["message"]["content"]
    assert answer["timings"]["draft_n"] > 0 and answer["timings"]["draft_n_accepted"] > 0
