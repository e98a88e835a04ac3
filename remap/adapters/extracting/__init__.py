"""An adapter out of a checkpoint.

chosen       one of its adapters, and its weights by the names that they have without any
trained      weights that differ from the base's
peft_folder  what PEFT's save_pretrained would have written
extract      all of it, or another part
"""
