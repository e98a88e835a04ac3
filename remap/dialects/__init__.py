"""How libraries spell the tensors of adapters: key <-> (wrapper, module, leaf, adapter). One dialect a file.

    registry.get("kohya").parse(key) -> AdapterTensor | None
    registry.get("peft").spell(tensor) -> key

Keys are parsed segment by segment, never edited as text: a module that is called ``lora_head`` or
``weight_gate`` is a module. Nothing here reads a file.
"""
