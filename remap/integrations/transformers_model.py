"""A Hugging Face folder that has only a ``config.json`` as the target of an audit."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers

from remap.audits.target import Target
from remap.errors import UsageError
from remap.integrations.torch_model import target_of


def open_folder(text: str) -> Target:
    """The model that the config names, of the installed transformers, built on the meta device.

    Code in the folder is never run. Raises UsageError for an architecture that transformers doesn't have.
    """
    path = Path(text)
    try:
        config = transformers.AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
    except (ValueError, OSError) as e:
        raise UsageError(f"transformers can't read its config: {e}", where=path) from None
    names = config.architectures or []
    found = next((getattr(transformers, n) for n in names if hasattr(transformers, n)), None)
    if found is None:
        wanted = " or ".join(names) or "architecture named in it"
        raise UsageError(
            f"transformers {transformers.__version__} has no {wanted}",
            where=path,
            remedy="use a key list: remap keys path.py:function -o keys.json",
        )
    with torch.device("meta"):
        model = found(config)
    return target_of(model, text)
