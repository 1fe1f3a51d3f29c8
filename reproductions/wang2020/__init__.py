"""The identification of [Wang2020] by stochastic gradients on single steps: `adam`."""
