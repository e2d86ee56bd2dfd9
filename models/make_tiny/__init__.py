"""Makes the tiny pair of models/tiny: text, target, drafter, files, reference."""
