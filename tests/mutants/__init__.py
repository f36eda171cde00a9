"""Mutations: each breaks one rule of the code by one small change, and a named test has to fail for it."""
