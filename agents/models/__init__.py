"""Simulators around others, and learned ones."""
