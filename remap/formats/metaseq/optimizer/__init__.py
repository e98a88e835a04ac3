"""The optimizer's state.

slots      what the files of a part hold of it, and whose it is
agree      whether files agree in what can't be cut
moments    that of a new file
by_weight  that of the whole model, for other formats
"""
