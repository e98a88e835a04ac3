"""What an adapter says of itself.

methods      PEFT's methods, and what the shapes of their tensors tell
peft_config  adapter_config.json, as far as tensors tell
own          remap.adapter.json, for adapters that have no configuration: MAGMA's, Megatron's
"""
