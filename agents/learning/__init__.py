"""Reinforcement learning with Stable-Baselines3."""
