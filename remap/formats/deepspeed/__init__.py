"""DeepSpeed's folders: ``pipeline`` layer files, or the ``module`` in ``mp_rank_XX``, with what ``zero``
keeps beside them; and ``universal`` checkpoints. ``names`` parses what files are called, ``degrees`` counts
ranks and stages, ``likeness`` writes rank files, ``neox`` knows what GPT-NeoX adds."""
