"""Torch files, the pickle never executed: one of ``torch.save``, or a folder of shards.

file       a file is read: which container it has, its pickle walked (``container``, ``legacy``)
state      what was read: the state dict (found by ``locate``), and what else it carries
folder     FORMAT, with shards and their index
writing/   a file is written
    rewrite    a rename: the pickle edited in place, every record copied (``names``: keys elsewhere in it)
    rebuild    more than a rename: the pickle written anew, everything else carried along
    emit       a file from nothing (``layout``: the zip as torch aligns it)
"""
