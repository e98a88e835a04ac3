"""A server or a worker that hangs up is an error to deal with, not the end of this process."""

from __future__ import annotations

import signal
import threading


def outlive_hangups() -> None:
    """Undo what the command line does for ``remap plan ... | head``: SIGPIPE ends the process, and would do
    so for a socket. Without it a write to what is gone raises BrokenPipeError, as everywhere in Python."""
    ours = threading.current_thread() is threading.main_thread()
    if ours and hasattr(signal, "SIGPIPE") and signal.getsignal(signal.SIGPIPE) is signal.SIG_DFL:
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
