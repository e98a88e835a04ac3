"""Pickle streams, read and edited without executing them.

    bytes ── walk ──> nodes ── survey ──> tensors, storages
                        │                    (bounds checked)
                        ├── rewrite ──> the same bytes with other keys
                        └── emit ────> a fresh stream

``walk`` runs the pickle machine on abstract nodes: nothing is imported, called or built.
``screen`` says which globals a loader would call.
"""
