"""What is measured, and against whom. Never imported by `taso`."""
