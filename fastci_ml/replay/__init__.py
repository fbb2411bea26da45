"""Whole policies over recorded history."""
