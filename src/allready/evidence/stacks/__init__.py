"""Stacks of processes: py-spy, faulthandler, gdb and pstack, /proc/PID/stack; and what a process is doing by them."""
