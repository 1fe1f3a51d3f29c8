"""The shared vocabulary of all rooms; it knows no robot."""
