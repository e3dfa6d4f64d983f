"""Draft trees as SGLang's n-gram worker wants them: from a mask of ancestors to indices."""

import torch


def reconstruct_indices_from_tree_mask(
    tree_mask,
    verified_seq_len,
    positions,
    retrieve_index,
    retrieve_next_token,
    retrieve_next_sibling,
    batch_size,
    draft_token_num,
):
    """Fills the four outputs in place (the last two: first child and next sibling of each node, -1: none)."""
    seen = tree_mask.reshape(batch_size, draft_token_num, draft_token_num).to(torch.bool).tolist()
    for batch, rows in enumerate(seen):
        above = [[j for j in range(i) if row[j]] for i, row in enumerate(rows)]
        parent = [max(a, default=-1) for a in above]
        later = {i: list(range(i + 1, draft_token_num)) for i in range(draft_token_num)}
        for i in range(draft_token_num):
            positions[batch * draft_token_num + i] = int(verified_seq_len[batch]) + len(above[i])
            retrieve_index[batch, i] = batch * draft_token_num + i
            retrieve_next_token[batch, i] = next((k for k in later[i] if i in above[k]), -1)
            twins = [k for k in later[i] if parent[k] == parent[i]] if parent[i] >= 0 else []
            retrieve_next_sibling[batch, i] = twins[0] if twins else -1
