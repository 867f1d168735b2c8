"""One machine alone: its facts as evidence, judged by the same rules as a check."""
