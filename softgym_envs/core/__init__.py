"""The shared vocabulary of all systems; it knows no robot."""
