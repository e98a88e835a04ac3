"""The optimizer's state.

slots      what the files of a part hold of it, and whose it is
moments    that of a new file
by_weight  that of the whole model, for other formats
"""
