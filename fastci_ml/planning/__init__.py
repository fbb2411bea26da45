"""From risk and evidence to a plan with a reason for every test."""
