"""A model's configuration in transformers' words (``config.json``) and in metaseq's (``cfg.model``).

What tensors show is read off them, as metaseq's scripts leave the saved configuration stale; only the rest is
taken from it. Source: metaseq ``models/transformer_decoder.py``, ``models/transformer_lm.py``, at f2cd3679
``models/transformer.py``; transformers ``configuration_opt.py``, ``modeling_opt.py``,
``convert_opt_original_pytorch_checkpoint_to_pytorch.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from remap.types import Entry, find_ties

SHOWN = {
    "decoder_layers": "num_hidden_layers",
    "decoder_embed_dim": "hidden_size",
    "decoder_ffn_embed_dim": "ffn_dim",
    "max_target_positions": "max_position_embeddings",
    "share_decoder_input_output_embed": "tie_word_embeddings",
    "decoder_normalize_before": "do_layer_norm_before",
}
"""metaseq's name -> transformers', of what tensors show, too."""

SAID = {
    "decoder_attention_heads": "num_attention_heads",
    "activation_fn": "activation_function",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
}
"""The same of what only a configuration says."""

NO_SCALE = "no_scale_embedding"
NAMES = frozenset({*SHOWN, *SAID, NO_SCALE})
"""The names in metaseq's configuration that are looked at."""

EMBEDDING, OUTPUT = "decoder.embed_tokens.weight", "decoder.output_projection.weight"
POSITIONS, FIRST, LAST_NORM = (
    "decoder.embed_positions.weight",
    "decoder.layers.0",
    "decoder.layer_norm.weight",
)
OFFSET = 2
"""Rows of the position embedding before that of the first position: up to the padding's, which is 1."""

_LAYER = re.compile(r"decoder\.layers\.(\d+)\..*")


def in_metaseq(config: Mapping[str, object]) -> dict[str, object]:
    """What transformers' configuration says, in metaseq's words."""
    return {ours: config[theirs] for ours, theirs in (SHOWN | SAID).items() if theirs in config}


def in_transformers(model: Mapping[str, object], entries: Mapping[str, Entry]) -> dict[str, object]:
    """The ``config.json`` of an OPT: of its tensors by name, and of what ``cfg.model`` says.

    {} where they are no OPT as transformers has it, or where the number of heads is not said: no tensor
    shows it.
    """
    shapes = {k: e.spec.shape for k, e in entries.items()}
    held = [shapes.get(k, ()) for k in (EMBEDDING, POSITIONS, f"{FIRST}.fc1.weight")]
    heads = model.get("decoder_attention_heads")
    if any(len(s) != 2 for s in held) or type(heads) is not int or model.get(NO_SCALE) is False:
        return {}
    (words, embed), (positions, hidden), (inner, _) = held
    prenorm = LAST_NORM in entries or model.get("decoder_normalize_before") is True
    return {
        "architectures": ["OPTForCausalLM"],
        "model_type": "opt",
        **{theirs: model[ours] for ours, theirs in SAID.items() if ours in model},
        "vocab_size": words,
        "word_embed_proj_dim": embed,
        "max_position_embeddings": positions - OFFSET,
        "hidden_size": hidden,
        "ffn_dim": inner,
        "num_hidden_layers": 1 + max(int(m[1]) for k in entries if (m := _LAYER.fullmatch(k))),
        "do_layer_norm_before": prenorm,
        "_remove_final_layer_norm": prenorm and LAST_NORM not in entries,
        "enable_bias": f"{FIRST}.fc1.bias" in entries,
        "layer_norm_elementwise_affine": f"{FIRST}.final_layer_norm.weight" in entries,
        "tie_word_embeddings": _tied(model, entries),
    }


def _tied(model: Mapping[str, object], entries: Mapping[str, Entry]) -> bool:
    """Is the projection the embedding? Two tensors with bytes of their own may be copies of one: of these the
    configuration says it."""
    if OUTPUT not in entries or entries[OUTPUT].spec != entries[EMBEDDING].spec:
        return OUTPUT not in entries
    both = [entries[EMBEDDING], entries[OUTPUT]]
    return bool(find_ties(both)) or model.get("share_decoder_input_output_embed") is not False
