"""How an output comes to its destination: whole, or not at all, whenever the run is killed.

``destination`` says whether anything may be put there, ``room`` is the folder beside it in which one run at
a time writes, ``journal`` remembers what is written there and for which conversion (``fingerprint``),
``staging`` moves the whole into place, ``names`` are the steps in which a system gives names to files.
"""
