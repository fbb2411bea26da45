"""What a change does and what is checked out: git, asked without trusting the repository."""
