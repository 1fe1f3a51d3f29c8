"""MuJoCo as a ground truth: our models, and the user's MJCF."""
