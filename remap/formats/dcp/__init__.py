"""torch.distributed.checkpoint (DCP): a folder of ``.metadata`` and ``.distcp`` files, read and written.

    .metadata ── metadata ──> names, shapes, chunks, where each item lies
    *.distcp  ── items ─────> each item is a torch.save archive of its own: where its bytes are
                 reader ────> a catalog; chunks joined over files
                 writing ───> items in files, then a new .metadata

``safetensors_shards`` reads what DCP's HuggingFaceStorageWriter leaves.
"""
