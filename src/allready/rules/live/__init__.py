"""Jobs that run: who is waited for, and whether its reason goes away by itself."""
