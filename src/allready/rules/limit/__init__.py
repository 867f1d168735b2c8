"""Limits that containers and login systems cut."""
