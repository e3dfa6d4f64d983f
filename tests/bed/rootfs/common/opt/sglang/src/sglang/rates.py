"""How fast the simulated model is: shaped after what was seen on ct200 (TP1: auto 26, b15 143 and 182.9 tok/s)."""
import math


def tp_factor(tp):
    """Step time against TP1: a part of each step does not get faster with more GPUs."""
    return 0.2 + 0.8 / tp


def accept_len(algorithm, draft_tokens, budget=None):
    """Mean tokens a verification step: 1 for plain decoding, ~3.5 for a chain of 16, more for a tree."""
    if not algorithm:
        return 1.0
    if budget:
        return round(1 + 9.2 * (1 - math.exp(-budget / 8.5)), 3)
    return round(1 + 2.57 * (1 - 0.8 ** draft_tokens), 3)


def step_cost(algorithm, budget=None):
    """Step time against a plain decode step: drafting, and verifying more nodes than fit into idle arithmetic."""
    if not algorithm:
        return 1.0
    return 1 + 0.01 * budget if budget else 1.08


def step_ms(gib, tp, algorithm, budget=None, running=1, base_ms=0.0):
    """Milliseconds of one decode step for `running` requests of a model with `gib` GiB of weights."""
    base_ms = base_ms or (37.2 if gib < 100 else 53.0)
    return base_ms * tp_factor(tp) * step_cost(algorithm, budget) * (1 + 0.03 * (running - 1))


def prefill_s(tokens, tp):
    """Seconds before the first token."""
    return 0.52 * tp_factor(tp) + tokens / 20000
