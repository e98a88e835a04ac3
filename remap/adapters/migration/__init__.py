"""An adapter follows its base through rule packs.

base      what is known of the base: a checkpoint, a key list, or what the adapter itself tells
carriers  kind by kind, what becomes of the adapter's tensors where the base's are renamed, cut, joined
naming    the shortest names that PEFT matches with the right modules and no other
config    adapter_config.json for the new names
migrate   all of it
"""
