"""An adapter for a base whose names changed, or in another library's words.

job       what the carriers share
carriers  kind by kind, what becomes of the adapter's tensors where the base's are renamed, cut, joined
config    adapter_config.json for the new names
follow    an adapter and its base's packs -> the plan of the new adapter
migrate   all of it: by packs, or by a dialect
"""
