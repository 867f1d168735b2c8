"""Software, variables, scripts and clocks that differ between nodes."""
