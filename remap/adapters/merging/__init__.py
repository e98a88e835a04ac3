"""An adapter's change written into its base, and taken out of it again.

changes   what an adapter makes of one tensor of its base, as an expression in float32
products  the changes of methods that multiply other factors than LoRA: LoHa, LoKr, VeRA, AdaLoRA
ties      what becomes of a tensor that is one with a changed one
merge     base and adapters -> the plan of the merged checkpoint
write     all of it, on disk
"""
