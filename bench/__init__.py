"""The benchmarks of `make bench`: ratios within one run, each claim beside its floor. They are no tests."""
