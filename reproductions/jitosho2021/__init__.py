"""The model of [Jitosho2021] as a simulator, `simulator`; its quadratic program as matrices, `program`."""
