"""Ops on one tensor: its elements, their order, their type."""
