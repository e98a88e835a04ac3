"""Rank files of torch FSDP: every rank saved its own state dict with ``torch.save``.

    rank0.pt, rank1.pt, ...    {key: DTensor or ShardedTensor, this rank's part of it}

    names ──────> the files of one save
    parts ──────> what part of which tensor a pickle describes (``placements``: where a DTensor's lies)
    joined ─────> the parts of all files, key by key
    folder ─────> a catalog

Read only. No process group is needed, nothing is unpickled.
"""
