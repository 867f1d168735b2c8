"""What runs inside of a rank: it executes the script unchanged and reports what the rank does."""
