"""Routing replay in every wire form, read into per-sample expert counts."""
