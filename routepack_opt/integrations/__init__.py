"""Seams of the reinforcement-learning trainers."""
