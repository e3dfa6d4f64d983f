"""Draft trees as SGLang's n-gram worker wants them: from a mask of ancestors to indices."""

import torch


def reconstruct_indices_from_tree_mask(
    mask, lengths, positions, index, child_of, sibling_of, batches, drafted
):
    """Fills `positions`, `index`, `child_of`, `sibling_of` (first child and next sibling of each node, -1: none)."""
    seen = mask.reshape(batches, drafted, drafted).to(torch.bool).tolist()
    for batch, rows in enumerate(seen):
        above = [[j for j in range(i) if row[j]] for i, row in enumerate(rows)]
        parent = [max(a, default=-1) for a in above]
        later = {i: list(range(i + 1, drafted)) for i in range(drafted)}
        for i in range(drafted):
            positions[batch * drafted + i] = int(lengths[batch]) + len(above[i])
            index[batch, i] = batch * drafted + i
            child_of[batch, i] = next((k for k in later[i] if i in above[k]), -1)
            twins = [k for k in later[i] if parent[k] == parent[i]] if parent[i] >= 0 else []
            sibling_of[batch, i] = twins[0] if twins else -1
