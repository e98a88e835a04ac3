"""What becomes of an adapter's tensors where packs change the base's, kind by kind.

low_rank  LoRA on modules, embeddings, convolutions and parameters; DoRA's lengths and biases with them
factors   IA3
whole     biases, layer norms, modules that were trained in full
renamed   every other method: carried where the weight is only renamed, refused otherwise
"""
