"""Rules as data: reading, writing, naming."""
