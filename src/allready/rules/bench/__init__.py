"""Rules about what a benchmark measured."""
