"""What `make bench` runs: ratios out of one run, each claim beside its floor. Nothing here is a test."""
