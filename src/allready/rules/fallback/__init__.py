"""What is left to say where nothing else explains the end of a run: asked last, and silent beside any other cause."""
