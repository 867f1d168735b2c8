"""What several sources say of one thing, put together: who is who, clocks, positions."""
