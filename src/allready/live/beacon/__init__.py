"""What runs inside of a rank: it executes the script unchanged and says beside it what the rank is about."""
