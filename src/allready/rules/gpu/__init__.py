"""GPUs: taken, missing, shared."""
