"""Does a checkpoint load, and if not, why: comparison, categories of findings, policy.

The way of the data: ``target`` (what is to be loaded into) and a source's catalog or plan go into a
``comparison``; each of ``categories`` explains some of its keys, as ``finding``s; ``suggest`` looks for one
change that explains many; ``policy`` says what each is worth, and ``judge`` makes the ``report`` of it.
``names`` has what the names of adapters, buffers, wrappers look like, ``clues`` what a key tells.
"""
