"""How the ranks of a run were connected, and in what they differed."""
