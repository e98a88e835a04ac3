"""One change that would explain many findings: a wrapper, a prefix, a renamed module, a known pack."""
