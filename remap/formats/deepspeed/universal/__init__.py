"""DeepSpeed's universal checkpoints: a folder for every weight, which any number of ranks loads.

``folder`` says what lies where, ``read`` opens it, ``write`` lays it out, ``state`` is the optimizer's
``optimizer_state.pt``; ``format`` is their door.
"""
