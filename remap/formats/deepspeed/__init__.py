"""DeepSpeed's folders: ``pipeline`` layer files, or the ``module`` in ``mp_rank_XX``; ``names`` parses
what its files are called."""
