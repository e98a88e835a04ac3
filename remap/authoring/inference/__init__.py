"""Two checkpoints or key lists -> a proposed pack. ``remap rules infer A B``.

    infer(source, target, name) -> Inferred

``content`` finds pairs that have the same bytes, ``align`` pairs that have like names and the same shape,
``generalise`` makes rules of pairs, and ``propose`` puts them together, tries the result on the source and
says what it could not explain.
"""

from remap.authoring.inference.propose import Inferred, infer

__all__ = ["Inferred", "infer"]
