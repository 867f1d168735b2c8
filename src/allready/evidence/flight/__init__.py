"""Flight-recorder dumps of torch: read without torch and without trust, then joined over all ranks."""
