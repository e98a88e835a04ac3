"""ZeRO: fp32 weights and moments that lie in flat pieces over the data-parallel ranks.

``shard`` reads one rank's optimizer file; ``cut`` finds each weight in the flat pieces; ``weights`` names
them; ``run`` is what a step folder holds; ``overlay`` and ``partitions`` make the model of it, ``view`` a
catalog. Nothing is decoded: a weight is its byte ranges.
"""
