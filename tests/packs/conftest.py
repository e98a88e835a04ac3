"""Property tests run on machines that are busy: no deadline for a single example."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("busy", deadline=None)
settings.load_profile("busy")
