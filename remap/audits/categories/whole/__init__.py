"""Findings about the comparison as a whole, and about the policy."""
