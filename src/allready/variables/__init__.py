"""What the environment variables of NCCL, PyTorch, Gloo, JAX and their environment mean.

`table` is the knowledge (TOML files in `tables/`), `values` and `filters` read a value as its reader does, `sources`
finds assignments in files, `presets` proposes settings for one machine, `scan` compares the table with released wheels.
"""
