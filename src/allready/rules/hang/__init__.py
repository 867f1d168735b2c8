"""Operations that never completed: who is missing in them, and why."""
