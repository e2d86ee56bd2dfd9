"""Measuring as the model cards do: workloads, arms, runs, tables. The way of a measurement is in ARCHITECTURE.md."""
