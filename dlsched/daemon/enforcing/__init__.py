"""What holds while jobs run: their time, their CPUs and memory, limits that were lowered."""
