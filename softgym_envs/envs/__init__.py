"""The one `gymnasium.Env`, the one native `VectorEnv`, and the list of ids."""
