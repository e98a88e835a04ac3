"""Where an adapter's tensors belong on its base.

places       the base's keys that they change, with what they tell of them
parameters   which bare parameter (stacked experts) factors are for
orientation  [out, in] or [in, out]?
naming       the shortest names that PEFT matches with the right modules and no other
heads        output heads that are the embedding, and in no file for that
variants     LoRA that is more than its factors
base         the base that was given, or what the adapter tells of it
explain      a base that has not what the adapter changes
expected     what the adapter must have on a base, for its audit
"""
