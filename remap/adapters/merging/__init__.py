"""An adapter's change written into its base, and taken out of it again.

changes  what an adapter makes of one tensor of its base, as an expression in float32
products the changes of methods that multiply other factors than LoRA: LoHa, LoKr, VeRA, AdaLoRA
merge    base and adapters -> the plan of the merged checkpoint
"""
