"""What a helper needs to see, in one file: without secrets, bounded in size, and read without touching the disk."""
