"""New files.

regroup         a checkpoint in other shards and parts; ``units`` says what is flattened together
singleton       everything in one file
file            a file in the likeness of another
metadata_nodes  its ``shard_metadata``
"""
