"""DeepSpeed's universal checkpoints: a folder for every weight, which any number of ranks loads.

``folder`` says what lies where, ``read`` opens it, ``optimizer`` its moments; ``write`` lays one out, with
``models`` and ``state`` beside the weights; ``format`` is their door.
"""
